"""Attribute and keyword tokens of renamed names that no edit touches and whose definition pyright does not know."""
OUT=__import__("os").environ.get("OUT","/dev/shm")
import os
import sys,json,collections,pathlib,ast,time
sys.path.insert(0,str(__import__('pathlib').Path(__file__).parent))
from load import load
from lsp import Lsp
from apply import collect
R=pathlib.Path(os.environ['BASE'])
ed,_=collect([OUT+'/top_edits.json',OUT+'/edits_mf.jsonl',OUT+'/edits_p.jsonl'])
tgt=collections.defaultdict(collections.Counter)
for k,o,n,_,_ in load():
    if k in('method','field','param','function'): tgt[o.rsplit('.',1)[-1].split(':')[-1]][n]+=1
l=Lsp(R); out=[]; t0=time.time(); nq=0
for d in('thespis','tests','benchmarks','tools'):
    for p in sorted((R/d).rglob('*.py')):
        rel=str(p.relative_to(R)); src=p.read_text(); tree=ast.parse(src); lines=src.split('\n'); bl=[x.encode() for x in lines]
        done={(a,b) for a,b,_ in ed.get(rel,{})}
        uri=None
        imported={a.asname or a.name.split('.')[0] for n in ast.walk(tree) if isinstance(n,(ast.Import,ast.ImportFrom)) for a in n.names if not (isinstance(n,ast.ImportFrom) and (n.module or '').startswith('thespis'))}
        def ask(line,c,name,kind,extra):
            global nq
            r=l.req('textDocument/definition',{"textDocument":{"uri":l.open(p)},"position":{"line":line,"character":c}}); nq+=1
            if r: return
            out.append([rel,line,c,c+len(name),name,kind,dict(tgt[name]),lines[line].strip()[:160],extra])
        for n in ast.walk(tree):
            if isinstance(n,ast.Attribute) and n.attr in tgt:
                v=n.value
                while isinstance(v,ast.Attribute): v=v.value
                if isinstance(v,ast.Name) and v.id in imported: continue
                line=n.end_lineno-1; c=len(bl[line][:n.end_col_offset].decode())-len(n.attr)
                if (line,c) in done: continue
                ask(line,c,n.attr,'attr','')
            if isinstance(n,ast.Call):
                f=ast.unparse(n.func)
                for k in n.keywords:
                    if k.arg in tgt:
                        line=k.lineno-1; c=len(bl[line][:k.col_offset].decode())
                        if (line,c) in done: continue
                        ask(line,c,k.arg,'kw',f[:60])
json.dump(out,open(OUT+'/unres.json','w'))
print(len(out),'of',nq,time.time()-t0)
c=collections.Counter((o[5],o[4]) for o in out); print(c.most_common(150))
