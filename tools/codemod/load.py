import csv,collections,re,pathlib
ROOMS=['learners','actors','envs','core','language','evaluation','methods','extra']
def load():
    rows=[];seen={}
    for r in ROOMS:
        for l in open(pathlib.Path(__file__).with_name(f'{r}.tsv')):
            l=l.rstrip('\n')
            if not l or l.startswith('#'): continue
            p=l.split('\t')+['','']
            kind,old,new,note=p[:4]
            kind=kind.strip()
            if (kind,old) in seen:
                if seen[kind,old][2]!=new: print('CONFLICT',kind,old,seen[kind,old][2],'|',new,r,seen[kind,old][4])
                continue
            row=(kind,old.strip(),new.strip(),note,r); seen[kind,old]=row; rows.append(row)
    return rows
if __name__=='__main__':
    rows=load(); print(len(rows)); print(collections.Counter(k for k,*_ in rows))
    for r in [r for r in rows if r[0] not in('module','class','function','method','field','param','constant')][:10]: print(r)
    att=collections.defaultdict(collections.Counter)
    for k,o,n,_,_ in rows:
        if k in('method','field','param'): att[o.rsplit('.',1)[1]][n]+=1
    multi={o:c for o,c in att.items() if len(c)>1}
    print(len(att),'attr names',len(multi),'with several targets')
    print({o:dict(c) for o,c in list(multi.items())[:60]})
    cls=collections.Counter(n for k,o,n,_,_ in rows if k=='class' and n!='None'); print([c for c in cls.items() if c[1]>1])
    print([ (o,n) for k,o,n,_,_ in rows if k=='class' and n=='None'])
