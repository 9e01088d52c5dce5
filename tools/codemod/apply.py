"""Apply collected edits to a tree equal to the base; report conflicts and leftovers."""
import os
import sys,json,collections,pathlib,ast,re
sys.path.insert(0,str(__import__('pathlib').Path(__file__).parent))
from load import load
def collect(files):
    ed=collections.defaultdict(dict); conf=[]
    for f in files:
        if f.endswith('.json'): src=[(None,e) for e in json.load(open(f))]
        else:
            src=[]
            for l in open(f):
                d=json.loads(l)
                for e in d['edits'] or []: src.append((d['old'],e))
        for who,(file,line,a,b,new) in src:
            if not file.startswith(('thespis/','tests/','benchmarks/','tools/')): continue
            k=(line,a,b)
            if k in ed[file] and ed[file][k][0]!=new: conf.append((file,line+1,a,ed[file][k],new,who)); continue
            ed[file][k]=(new,who)
    return ed,conf
def apply(ed,target):
    n=0
    for file,es in ed.items():
        p=target/file; lines=p.read_text().split('\n')
        for (line,a,b),(new,who) in sorted(es.items(),reverse=True):
            l=lines[line]; lines[line]=l[:a]+new+l[b:]; n+=1
        p.write_text('\n'.join(lines))
    return n
if __name__=='__main__':
    target=pathlib.Path(sys.argv[1]); ed,conf=collect(sys.argv[2:])
    print('conflicts',len(conf)); 
    for c in conf[:30]: print(c)
    print('applied',apply(ed,target),'in',len(ed))
