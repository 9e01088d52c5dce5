import os
import sys,ast,collections
sys.path.insert(0,str(__import__('pathlib').Path(__file__).parent))
from load import load
import pathlib
R=pathlib.Path(os.environ['BASE'])
rows=load(); have={(o) for k,o,n,_,_ in rows}
bymod=collections.defaultdict(lambda: collections.defaultdict(set))
allm=collections.defaultdict(set)
for k,o,n,_,_ in rows:
    if k in('method','field','param') and ':' in o:
        m,q=o.split(':'); p=q.split('.')
        bymod[m]['.'.join(p[1:])].add(n); allm['.'.join(p[1:])].add(n)
for k,o,n,_,_ in rows:
    if k=='class' and n=='None':
        m,c=o.split(':'); t=ast.parse((R/(m.replace('.','/')+'.py')).read_text())
        for node in t.body:
            if isinstance(node,ast.ClassDef) and node.name==c:
                for x in node.body:
                    names=[]
                    if isinstance(x,ast.FunctionDef):
                        names=[(x.name,'method')]+[(f'{x.name}.{a.arg}','param') for a in x.args.args+x.args.kwonlyargs if a.arg!='self']
                    elif isinstance(x,ast.AnnAssign): names=[(x.target.id,'field')]
                    elif isinstance(x,ast.Assign): names=[(x.targets[0].id,'field')]
                    for nm,kd in names:
                        if f'{m}:{c}.{nm}' in have: continue
                        s=bymod[m].get(nm) or allm.get(nm)
                        if s: print(kd,f'{m}:{c}.{nm}','|'.join(sorted(s)),'' if len(s)==1 else '???',sep='\t')
