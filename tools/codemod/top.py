"""Edits for module-level names (class, function, constant): precise by bindings and scopes. -> list of (file,line,col,endcol,new)"""
OUT=__import__("os").environ.get("OUT","/dev/shm")
import os
import ast,sys,pathlib,collections,json,re
sys.path.insert(0,str(__import__('pathlib').Path(__file__).parent))
from load import load
R=pathlib.Path(os.environ['BASE'])
FILES=[p for d in('thespis','tests','benchmarks','tools') for p in sorted((R/d).rglob('*.py'))]
def modname(p):
    rel=p.relative_to(R).with_suffix('')
    parts=list(rel.parts)
    if parts[-1]=='__init__': parts=parts[:-1]
    return '.'.join(parts)
TREES={p:(p.read_text(),ast.parse(p.read_text())) for p in FILES}
MODS={modname(p):p for p in FILES}
def bound(node):
    """names bound directly in a function/class/module body scope"""
    out=set(); globs=set()
    def targets(t):
        for n in ast.walk(t):
            if isinstance(n,ast.Name) and isinstance(n.ctx,(ast.Store,ast.Del)): out.add(n.id)
            if isinstance(n,(ast.MatchAs,ast.MatchStar)) and n.name: out.add(n.name)
    def visit(n):
        if isinstance(n,(ast.FunctionDef,ast.AsyncFunctionDef,ast.ClassDef)):
            out.add(n.name)
            for d in n.decorator_list: visit(d)
            return
        if isinstance(n,(ast.Lambda,ast.ListComp,ast.SetComp,ast.DictComp,ast.GeneratorExp)):
            for w in ast.walk(n):
                if isinstance(w,ast.NamedExpr): out.add(w.target.id)
            return
        if isinstance(n,(ast.Import,ast.ImportFrom)):
            for a in n.names: out.add(a.asname or a.name.split('.')[0])
        if isinstance(n,ast.Name) and isinstance(n.ctx,(ast.Store,ast.Del)): out.add(n.id)
        if isinstance(n,ast.ExceptHandler) and n.name: out.add(n.name)
        if isinstance(n,(ast.MatchAs,ast.MatchStar)) and n.name: out.add(n.name)
        if isinstance(n,ast.MatchMapping) and n.rest: out.add(n.rest)
        if isinstance(n,ast.Global): globs.update(n.names)
        for c in ast.iter_child_nodes(n): visit(c)
    body=node.body if isinstance(node.body,list) else [node.body]
    for n in body: visit(n)
    if isinstance(node,(ast.FunctionDef,ast.AsyncFunctionDef,ast.Lambda)):
        a=node.args
        out.update(x.arg for x in a.posonlyargs+a.args+a.kwonlyargs)
        for x in (a.vararg,a.kwarg):
            if x: out.add(x.arg)
    return out-globs
# exports: module -> name -> qualified definition (following re-imports)
DEFS={}
for m,p in MODS.items():
    DEFS[m]={}
    for n in ast.walk(TREES[p][1]):
        pass
    def collect(body,m=m):
        for n in body:
            if isinstance(n,(ast.FunctionDef,ast.AsyncFunctionDef,ast.ClassDef)): DEFS[m][n.name]=f'{m}:{n.name}'
            elif isinstance(n,(ast.Assign,ast.AnnAssign)):
                for t in (n.targets if isinstance(n,ast.Assign) else [n.target]):
                    for s in ast.walk(t):
                        if isinstance(s,ast.Name) and isinstance(s.ctx,ast.Store): DEFS[m][s.id]=f'{m}:{s.id}'
            elif isinstance(n,(ast.If,ast.Try,ast.With,ast.For)):
                collect(n.body); collect(getattr(n,'orelse',[]))
                for h in getattr(n,'handlers',[]): collect(h.body)
    collect(TREES[p][1].body)
IMPORTS={m:{} for m in MODS}
def resolve_import(m,n):
    if n.level:
        base=m.split('.') if MODS[m].name=='__init__.py' else m.split('.')[:-1]
        base=base[:len(base)-(n.level-1)]
        return '.'.join(base+([n.module] if n.module else []))
    return n.module
for m,p in MODS.items():
    for n in TREES[p][1].body:
        if isinstance(n,ast.ImportFrom):
            src=resolve_import(m,n)
            for a in n.names: IMPORTS[m][a.asname or a.name]=(src,a.name)
def short(src):  # tests import each other by bare names
    if src in MODS: return src
    for c in ('tests.'+src,'tools.'+src,'benchmarks.'+src,'benchmarks.games.'+src):
        if c in MODS: return c
    for m in MODS:
        if m.startswith(('tests.','benchmarks.')) and m.endswith('.'+src): return m
    return src
def define(m,name,depth=0):
    """qualified definition of name as seen in module m"""
    m=short(m)
    if depth>5: return None
    if m in DEFS and name in DEFS[m]: return DEFS[m][name]
    if m in IMPORTS and name in IMPORTS[m]:
        s,n=IMPORTS[m][name]
        s=short(s) if s else s
        if s and f'{s}.{n}' in MODS: return ('module',f'{s}.{n}')
        return define(s,n,depth+1) if s in MODS else None
    return None
def module_binding(src,name):
    s=short(src); full=f'{s}.{name}'
    return full if full in MODS else None
def main():
    rows=[r for r in load() if r[0] in('class','function','constant') and r[2]!='None']
    NEW={}
    for k,o,n,_,_ in rows:
        m,q=o.split(':')
        if '.' in q: continue   # nested: by LSP
        NEW[o]=n
    unknown=[o for o in NEW if DEFS.get(o.split(':')[0],{}).get(o.split(':')[1]) is None]
    print('unknown defs',len(unknown),unknown[:20])
    edits=[]; used=collections.Counter()
    strings=[]
    for m,p in MODS.items():
        src,tree=TREES[p]; rel=str(p.relative_to(R)); lines=src.split('\n')
        blines=[l.encode() for l in lines]
        def col(line,bcol): return len(blines[line-1][:bcol].decode())
        def add(line,c,old,new,what):
            assert lines[line-1][c:c+len(old)]==old,(rel,line,lines[line-1],c,old)
            edits.append([rel,line-1,c,c+len(old),new]); used[what]+=1
        # module-level binding map
        top={}
        for name,q in DEFS[m].items(): top[name]=q
        def imports_of(nodes):
            b={}
            for n in nodes:
                if isinstance(n,ast.ImportFrom):
                    s=resolve_import(m,n)
                    for a in n.names:
                        if s is None: continue
                        mb=module_binding(s,a.name) 
                        d=define(s,a.name) if short(s) in MODS else None
                        if isinstance(d,tuple): b[a.asname or a.name]=d
                        elif d: b[a.asname or a.name]=d
                        elif mb: b[a.asname or a.name]=('module',mb)
                elif isinstance(n,ast.Import):
                    for a in n.names:
                        if a.asname and short(a.name) in MODS: b[a.asname]=('module',short(a.name))
            return b
        def body_imports(node):
            res=[]
            def v(n):
                for c in ast.iter_child_nodes(n):
                    if isinstance(c,(ast.FunctionDef,ast.AsyncFunctionDef,ast.ClassDef,ast.Lambda)): continue
                    if isinstance(c,(ast.Import,ast.ImportFrom)): res.append(c)
                    v(c)
            v(node); return res
        top.update(imports_of(body_imports(tree)))
        def find_token(line,frm,name):
            for i in range(line-1,min(line+60,len(lines))):
                for mt in re.finditer(r'(?<![\w])%s\b'%re.escape(name),lines[i]):
                    if i>line-1 or mt.start()>=frm: return i+1,mt.start()
        aliased=set()
        def walk(n,scopes):
            # scopes: list of dicts name->qualified|None(local)
            def look(name):
                for s in reversed(scopes):
                    if name in s: return s[name]
                return None
            if isinstance(n,(ast.FunctionDef,ast.AsyncFunctionDef,ast.ClassDef)):
                q=look(n.name)
                if isinstance(q,str) and q in NEW and len(scopes)==1:
                    kw=r'\b(?:class|def)\s+(%s)\b'%n.name
                    for i in range(n.lineno-1,n.lineno+2):
                        mt=re.search(kw,lines[i])
                        if mt: add(i+1,mt.start(1),n.name,NEW[q],q); break
                for d in n.decorator_list: walk(d,scopes)
                if isinstance(n,ast.ClassDef):
                    for b in n.bases+n.keywords: walk(b,scopes)
                    inner={x:None for x in bound(n)}
                    for c in n.body: walk_class(c,scopes,inner)
                    return
                for x in ast.walk(n.args):
                    pass
                for d in n.args.defaults+[k for k in n.args.kw_defaults if k]: walk(d,scopes)
                for a in n.args.posonlyargs+n.args.args+n.args.kwonlyargs+[x for x in(n.args.vararg,n.args.kwarg) if x]:
                    if a.annotation: walk(a.annotation,scopes)
                if n.returns: walk(n.returns,scopes)
                inner={x:None for x in bound(n)}
                inner.update(imports_of(body_imports(n)))
                for c in n.body: walk(c,scopes+[inner])
                return
            if isinstance(n,ast.Lambda):
                for d in n.args.defaults: walk(d,scopes)
                walk(n.body,scopes+[{x:None for x in bound(n)}]); return
            if isinstance(n,(ast.ListComp,ast.SetComp,ast.DictComp,ast.GeneratorExp)):
                inner={}
                for g in n.generators:
                    for t in ast.walk(g.target):
                        if isinstance(t,ast.Name): inner[t.id]=None
                for c in ast.iter_child_nodes(n): walk(c,scopes+[inner])
                return
            if isinstance(n,ast.ImportFrom):
                s=resolve_import(m,n)
                for a in n.names:
                    d=define(s,a.name) if s and short(s) in MODS else None
                    if isinstance(d,str) and d in NEW:
                        t=(a.lineno,col(a.lineno,a.col_offset))
                        add(t[0],t[1],a.name,NEW[d],d)
                        if a.asname and a.asname==a.name:
                            tt=find_token(t[0],t[1]+len(a.name),a.asname); add(tt[0],tt[1],a.asname,NEW[d],d)
                        elif a.asname:
                            aliased.add(a.asname)
                return
            if isinstance(n,ast.Name):
                q=look(n.id)
                if isinstance(q,str) and q in NEW and n.id not in aliased:
                    # alias imports keep their alias
                    if q.split(':')[1]==n.id: add(n.lineno,col(n.lineno,n.col_offset),n.id,NEW[q],q)
                return
            if isinstance(n,ast.Attribute) and isinstance(n.value,(ast.Name,ast.Attribute)):
                dotted=[]; v=n.value
                q=None
                if isinstance(v,ast.Name):
                    q=look(v.id)
                if isinstance(q,tuple):
                    d=define(q[1],n.attr)
                    if isinstance(d,str) and d in NEW: add(n.end_lineno,col(n.end_lineno,n.end_col_offset)-len(n.attr),n.attr,NEW[d],d)
                    return
                # thespis.a.b.Name fully dotted
                parts=[n.attr]; w=v
                while isinstance(w,ast.Attribute): parts.append(w.attr); w=w.value
                if isinstance(w,ast.Name):
                    parts.append(w.id); parts=parts[::-1]; mod='.'.join(parts[:-1])
                    if mod in MODS:
                        d=define(mod,parts[-1])
                        if isinstance(d,str) and d in NEW: add(n.end_lineno,col(n.end_lineno,n.end_col_offset)-len(n.attr),n.attr,NEW[d],d); return
            if isinstance(n,ast.Global):
                for name in n.names:
                    q=top.get(name)
                    if isinstance(q,str) and q in NEW:
                        t=find_token(n.lineno,col(n.lineno,n.col_offset),name); add(t[0],t[1],name,NEW[q],q)
            for c in ast.iter_child_nodes(n): walk(c,scopes)
        def walk_class(c,scopes,inner):
            # names assigned in the class body are visible in the class body only
            if isinstance(c,(ast.FunctionDef,ast.AsyncFunctionDef)):
                # defaults/annotations see class scope; body does not
                for d in c.decorator_list: walk(d,scopes+[{k:v for k,v in inner.items() if k in ('property',) or False}])
                walk_fn(c,scopes); return
            if isinstance(c,ast.ClassDef): walk(c,scopes+[{}]); return
            # statements of the class body: field names are targets; values may refer to outer names
            if isinstance(c,ast.AnnAssign):
                walk(c.annotation,scopes)
                if c.value: walk(c.value,scopes+[inner] if False else scopes)
                return
            if isinstance(c,ast.Assign):
                walk(c.value,scopes); return
            walk(c,scopes)
        def walk_fn(n,scopes):
            for d in n.args.defaults+[k for k in n.args.kw_defaults if k]: walk(d,scopes)
            for a in n.args.posonlyargs+n.args.args+n.args.kwonlyargs+[x for x in(n.args.vararg,n.args.kwarg) if x]:
                if a.annotation: walk(a.annotation,scopes)
            if n.returns: walk(n.returns,scopes)
            inner={x:None for x in bound(n)}; inner.update(imports_of(body_imports(n)))
            for c in n.body: walk(c,scopes+[inner])
        for c in tree.body: walk(c,[top])
    seen=set(); out=[]
    for e in edits:
        k=tuple(e[:4])
        if k in seen: continue
        seen.add(k); out.append(e)
    print('edits',len(out),'names used',len(used),'of',len(NEW),'unused',[o for o in NEW if o not in used][:20])
    json.dump(out,open(OUT+'/top_edits.json','w'))
if __name__=='__main__': main()
