import { fork, spawn } from 'node:child_process'; import { once } from 'node:events'; import { openSync } from 'node:fs'; import http from 'node:http'; import express from 'express';
import { benchDocument, benchedOperation } from './test/bench/document.ts';
import { createContract } from './src/kernel/contract.ts'; import { createLog } from './src/kernel/log.ts'; import { createRedactor } from './src/kernel/secret.ts'; import { createServer } from './src/kernel/zz-server.ts'; import { systemClock } from './src/kernel/clock.ts'; import { Visit } from './src/kernel/visit.ts'; import { id } from './src/kernel/ids.ts'; import { createResponder } from './src/kernel/respond.ts';
const mode = process.argv[2];
process.on('message', () => { const u=process.cpuUsage(); const m=process.memoryUsage(); process.send!([u.user,u.system]); });
function setup(logLevel:any){ const { document, operationIds } = benchDocument();
 const handlers:any = Object.fromEntries(operationIds.map((o) => [o, async () => ({ status: 200, body: {} })])); handlers[benchedOperation] = async (c:any)=>({status:200,body:{echo:c.body}});
 const contract = createContract<any>({ definition: document, handlers, identities:{userToken:'user',adminSession:'admin'}, identify: async()=>({kind:'user'}), guest:{kind:'guest'} });
 const log = createLog({ level: logLevel, redactor: createRedactor() }); return {contract, log}; }
const echo=(req:any,res:any)=>{ const cs:any[]=[]; req.on('data',(c:any)=>cs.push(c)); req.on('end',()=>{ const b=JSON.stringify({echo:JSON.parse(Buffer.concat(cs).toString())}); res.writeHead(200,{'content-type':'application/json','content-length':Buffer.byteLength(b)}); res.end(b); }); };
const listen=(h:any)=>{const s=http.createServer(h); s.listen(0,'127.0.0.1',()=>process.send!((s.address() as any).port));};
if (mode==='bare') listen(echo);
else if (mode==='express') { const app=express(); app.disable('x-powered-by'); app.use((q,s)=>echo(q,s)); listen(app); }
else if (mode==='headers') listen((req:any,res:any)=>{ const cs:any[]=[]; req.on('data',(c:any)=>cs.push(c)); req.on('end',()=>{ const b=JSON.stringify({echo:JSON.parse(Buffer.concat(cs).toString())}); res.writeHead(200,{'x-request-id':id('req'),'x-content-type-options':'nosniff','cache-control':'no-store','server-timing':'app;dur=0.4','content-type':'application/json; charset=utf-8','content-length':Buffer.byteLength(b)}); res.end(b); }); });
else if (mode==='noexpress' || mode==='visit') { const {contract,log}=setup('silent'); const r=createResponder({contract,clock:systemClock,surface:'gateway',streams:{heartbeatMs:15000,stallMs:60000},corsOrigins:new Set(),draining:()=>false});
 listen((req:any,res:any)=>{ const v=new Visit(req,res,{requestId:id('req'),log,nowMs:performance.now(),limits:{maxBytes:1e6}}); if(mode==='noexpress') contract.dispatch(v).then((x)=>r.reply(v,x)); else { const b:any=v.readBody({operationId:'x',maxBodyBytes:undefined,body:{required:true,mediaTypes:['application/json']},passthrough:false}); b.then((x:any)=>r.reply(v,{status:200,body:{echo:x.json}})); } }); if(process.env.WARM!=='0') void contract.warm(log); }
else if (mode==='nolog'||mode==='noex'||mode==='full') { const {contract,log}=setup(mode==='full'?'info':'silent'); const s=createServer({contract,log,clock:systemClock,surface:'gateway'}); s.listen({host:'127.0.0.1',port:0}).then(({port})=>process.send!(port)); }
else {
 const sink=openSync('/dev/null','w'); const modes=process.argv[3]?.split(',') ?? ['bare','headers','express','visit','noexpress','nolog','full'];
 const cs=modes.map(m=>fork('./zz-var.ts',[m],{stdio:['ignore',sink,'inherit','ipc']})); const ports=await Promise.all(cs.map(async c=>(await once(c,'message'))[0]));
 const load=async(p:any,s:any)=>{const l=spawn(process.execPath,['test/bench/load.ts',String(p),String(s),'32'],{stdio:['ignore','pipe','inherit']}); let o=''; l.stdout.on('data',d=>o+=d); await once(l,'close'); return JSON.parse(o)};
 for (const p of ports) await load(p,3);
 const res:any={}; for(let r=0;r<4;r++) for (const [i,m] of modes.entries()){ cs[i].send('x'); const [a]=await once(cs[i],'message'); const l=await load(ports[i],1.5); cs[i].send('x'); const [b]=await once(cs[i],'message'); (res[m]??=[]).push([(b[0]-a[0])/l.answers,(b[1]-a[1])/l.answers,l.perSecond]); }
 for (const m of modes){ const s=res[m].sort((x:any,y:any)=>x[0]+x[1]-y[0]-y[1]); console.log(m.padEnd(10),'min user',s[0][0].toFixed(1),'sys',s[0][1].toFixed(1),'total',(s[0][0]+s[0][1]).toFixed(1),'| med total',(s[1][0]+s[1][1]).toFixed(1),'rate',s.map((x:any)=>x[2]).join(' ')); }
 for (const c of cs) c.kill();
}
