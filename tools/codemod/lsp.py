"""A small client of pyright's language server: type-aware renames over a tree."""
import json, subprocess, pathlib, time, urllib.parse, threading, queue, os
class Lsp:
    def __init__(self, root, venv=os.environ.get('VENV','.'), include=None):
        self.root=pathlib.Path(root); self.docs={}; self.ver={}
        self.p=subprocess.Popen(['node','--max-old-space-size=6000',__import__('pyright').__path__[0]+'/dist/langserver.index.js','--stdio'],stdin=subprocess.PIPE,stdout=subprocess.PIPE,stderr=subprocess.DEVNULL)
        self.id=0; self.q=queue.Queue(); self.cfg={"python":{"pythonPath":venv+"/.venv/bin/python","analysis":{"diagnosticMode":"workspace","typeCheckingMode":"off","indexing":False}}}
        threading.Thread(target=self.reader,daemon=True).start()
        uri=self.root.as_uri()
        self.req('initialize',{"processId":None,"rootUri":uri,"workspaceFolders":[{"uri":uri,"name":"r"}],"capabilities":{"workspace":{"configuration":True,"workspaceEdit":{"documentChanges":True},"didChangeWatchedFiles":{"dynamicRegistration":True}},"textDocument":{"rename":{"prepareSupport":True}}}})
        self.note('initialized',{})
        self.note('workspace/didChangeConfiguration',{"settings":self.cfg})
    def send(self,m):
        b=json.dumps(m).encode(); self.p.stdin.write(b'Content-Length: %d\r\n\r\n'%len(b)+b); self.p.stdin.flush()
    def reader(self):
        f=self.p.stdout
        while True:
            n=0
            while True:
                l=f.readline()
                if not l: return
                if l==b'\r\n': break
                if l.lower().startswith(b'content-length'): n=int(l.split(b':')[1])
            m=json.loads(f.read(n))
            if 'method' in m and 'id' in m:
                if m['method']=='workspace/configuration':
                    r=[]
                    for it in m['params']['items']:
                        s=it.get('section','') or ''
                        c=self.cfg
                        for k in s.split('.'):
                            c=c.get(k,{}) if k else c
                        r.append(c)
                    self.send({"jsonrpc":"2.0","id":m['id'],"result":r})
                else: self.send({"jsonrpc":"2.0","id":m['id'],"result":None})
            elif 'id' in m: self.q.put(m)
    def req(self,method,params,timeout=300):
        self.id+=1; self.send({"jsonrpc":"2.0","id":self.id,"method":method,"params":params})
        while True:
            m=self.q.get(timeout=timeout)
            if m['id']==self.id:
                if 'error' in m: raise RuntimeError(m['error'])
                return m.get('result')
    def note(self,method,params): self.send({"jsonrpc":"2.0","method":method,"params":params})
    def open(self,path):
        path=pathlib.Path(path); uri=path.as_uri()
        if uri not in self.docs:
            self.docs[uri]=path.read_text(); self.ver[uri]=1
            self.note('textDocument/didOpen',{"textDocument":{"uri":uri,"languageId":"python","version":1,"text":self.docs[uri]}})
        return uri
    def change(self,uri,text):
        self.docs[uri]=text; self.ver[uri]+=1
        self.note('textDocument/didChange',{"textDocument":{"uri":uri,"version":self.ver[uri]},"contentChanges":[{"text":text}]})
    def edits(self,path,line,col,new):
        uri=self.open(path)
        r=self.req('textDocument/rename',{"textDocument":{"uri":uri},"position":{"line":line,"character":col},"newName":new})
        out={}
        if not r: return out
        for d in r.get('documentChanges',[]):
            if 'textDocument' in d: out.setdefault(d['textDocument']['uri'],[]).extend(d['edits'])
        for u,e in (r.get('changes') or {}).items(): out.setdefault(u,[]).extend(e)
        return out
    def apply(self,out):
        n=0
        for uri,es in out.items():
            path=pathlib.Path(urllib.parse.unquote(uri[7:]))
            self.open(path); uri2=path.as_uri()
            lines=self.docs[uri2].split('\n')
            for e in sorted(es,key=lambda e:(e['range']['start']['line'],e['range']['start']['character']),reverse=True):
                s,t=e['range']['start'],e['range']['end']; assert s['line']==t['line']
                l=lines[s['line']]; lines[s['line']]=l[:s['character']]+e['newText']+l[t['character']:]; n+=1
            text='\n'.join(lines); self.change(uri2,text); path.write_text(text)
        return n
