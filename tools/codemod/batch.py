"""All renames of the table as edits on one unchanged tree: OUT/edits.jsonl, a line a rename."""
OUT=__import__("os").environ.get("OUT","/dev/shm")
import sys,ast,json,time,pathlib,re,os
sys.path.insert(0,str(__import__('pathlib').Path(__file__).parent))
import load as L_
load=lambda: L_.load()
from lsp import Lsp
R=pathlib.Path(os.environ['BASE'])
def position(tree,src,path,kind,qual):
    """(line, col) of the defining token of qual in the file."""
    lines=src.split('\n')
    def token(node_line,name,start=0):
        for i in range(node_line-1,min(node_line+40,len(lines))):
            m=re.search(r'(?<![\w.])%s\b'%re.escape(name),lines[i][start if i==node_line-1 else 0:])
            if m: return i,m.start()+(start if i==node_line-1 else 0)
    def find(body,name):
        for n in body:
            if isinstance(n,(ast.FunctionDef,ast.ClassDef,ast.AsyncFunctionDef)) and n.name==name: return n
            if isinstance(n,(ast.AnnAssign)) and isinstance(n.target,ast.Name) and n.target.id==name: return n.target
            if isinstance(n,ast.Assign):
                for t in n.targets:
                    for s in ast.walk(t):
                        if isinstance(s,ast.Name) and s.id==name: return s
            if isinstance(n,(ast.If,ast.Try,ast.With)):
                r=find(n.body+getattr(n,'orelse',[])+[x for h in getattr(n,'handlers',[]) for x in h.body],name)
                if r is not None: return r
    node=tree; parts=qual.split('.')
    for j,p in enumerate(parts):
        last=j==len(parts)-1
        if isinstance(node,(ast.FunctionDef,ast.AsyncFunctionDef)):
            a=node.args
            for arg in a.posonlyargs+a.args+a.kwonlyargs+[x for x in (a.vararg,a.kwarg) if x]:
                if arg.arg==p and last:
                    return arg.lineno-1,arg.col_offset
            r=find(node.body,p)
            if r is None:
                return None
            node=r; continue
        r=find(node.body,p) if hasattr(node,'body') else None
        if r is None and isinstance(node,ast.ClassDef):
            for n in ast.walk(node):  # self.x = ...
                if isinstance(n,ast.Attribute) and n.attr==p and isinstance(n.ctx,ast.Store) and isinstance(n.value,ast.Name) and n.value.id=='self':
                    return n.end_lineno-1,n.end_col_offset-len(p)
            init=find(node.body,'__init__')
            if init is not None and last and kind=='param':
                node=init
                for arg in init.args.args+init.args.kwonlyargs:
                    if arg.arg==p: return arg.lineno-1,arg.col_offset
        if r is None: return None
        node=r
    if isinstance(node,(ast.FunctionDef,ast.ClassDef,ast.AsyncFunctionDef)):
        kw='class' if isinstance(node,ast.ClassDef) else 'def'
        for i in range(node.lineno-1,node.lineno+2):
            m=re.search(r'\b%s\s+(%s)\b'%(kw,node.name),lines[i])
            if m: return i,m.start(1)
    return node.lineno-1,node.col_offset
def main(kinds,out):
    rows=[r for r in load() if r[0] in kinds and r[2]!='None']
    (R/'pyrightconfig.json').write_text(json.dumps({"include":["thespis","tests","benchmarks","tools"],"pythonVersion":"3.11","typeCheckingMode":"off","extraPaths":["tests","tools","benchmarks","benchmarks/games"]}))
    l=Lsp(R); done=set()
    if os.path.exists(out):
        for x in open(out): d=json.loads(x); done.add((d['kind'],d['old']))
    f=open(out,'a'); t0=time.time(); miss=0
    cache={}
    rows.sort(key=lambda r:(r[1].split(':')[0]))
    for n,(kind,old,new,note,room) in enumerate(rows):
        if (kind,old) in done: continue
        mod,_,qual=old.partition(':')
        p=R/(mod.replace('.','/')+'.py')
        if not p.exists(): p=R/mod.replace('.','/')/'__init__.py'
        if p not in cache:
            s=p.read_text(); cache[p]=(s,ast.parse(s))
        pos=position(cache[p][1],cache[p][0],p,kind,qual)
        if pos is None:
            miss+=1; f.write(json.dumps({'kind':kind,'old':old,'new':new,'edits':None,'why':'no position'})+'\n'); continue
        name=qual.split('.')[-1]
        line=cache[p][0].split('\n')[pos[0]]
        if line[pos[1]:pos[1]+len(name)]!=name:
            miss+=1; f.write(json.dumps({'kind':kind,'old':old,'new':new,'edits':None,'why':'token '+line})+'\n'); continue
        t=time.time()
        try: e=l.edits(p,pos[0],pos[1],new)
        except Exception as x:
            f.write(json.dumps({'kind':kind,'old':old,'new':new,'edits':None,'why':str(x)[:200]})+'\n'); miss+=1; continue
        es=[[u.split(R.as_uri()+'/')[1],e2['range']['start']['line'],e2['range']['start']['character'],e2['range']['end']['character'],e2['newText']] for u,v in e.items() for e2 in v if u.startswith(R.as_uri()+'/')]
        f.write(json.dumps({'kind':kind,'old':old,'new':new,'at':[str(p.relative_to(R)),*pos],'edits':es})+'\n')
        if n%50==0: f.flush(); print(n,len(rows),round(time.time()-t0),round(time.time()-t,2),old,len(es),'miss',miss,flush=True)
    f.close(); print('done',miss,time.time()-t0)
if __name__=='__main__': main(sys.argv[1].split(','),sys.argv[2])
