// The cost of the kernel: a bare node:http echo against the kernel (route, bearer, identity,
// validation, JSON out) with a contract of 130 paths, in alternating rounds of the same run. Both
// servers and the load are separate processes. Prints each round and the ratio; exits 1 below the
// target of 0.45. BENCH_LOG=on adds the access log's line per request, which the target excludes.
//
//   node test/bench/kernel.ts [ROUNDS=6] [SECONDS=2]
import { type ChildProcess, fork, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync } from 'node:fs';
import { createServer as createBareServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { fileURLToPath } from 'node:url';
import { systemClock } from '../../src/kernel/clock.ts';
import { createContract } from '../../src/kernel/contract/contract.ts';
import { createLog } from '../../src/kernel/log.ts';
import { createRedactor } from '../../src/kernel/secrets/secret.ts';
import { createServer } from '../../src/kernel/http/server.ts';
import { benchDocument, benchedOperation } from './document.ts';
import { median } from './statistics.ts';

const targetRatio = 0.45;
const connections = 32;
const warmUpSeconds = 3;
const self = fileURLToPath(import.meta.url);
const [mode, ...modeArguments] = process.argv.slice(2);

// A server reports its processor time on request. Unlike the request rate, it does not depend on
// other work of the machine.
process.on('message', () => process.send?.(usedMicroseconds()));

if (mode === 'bare') serveBare();
else if (mode === 'kernel') await serveKernel();
else await compare(Number(mode ?? 6), Number(modeArguments[0] ?? 2));

function serveBare(): void {
  const server = createBareServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const body = JSON.stringify({ echo: JSON.parse(Buffer.concat(chunks).toString('utf8')) as unknown });
      response.writeHead(200, {
        'content-type': 'application/json',
        'content-length': Buffer.byteLength(body),
      });
      response.end(body);
    });
  });
  server.listen(0, '127.0.0.1', () => process.send?.((server.address() as AddressInfo).port));
}

async function serveKernel(): Promise<void> {
  const { document, operationIds } = benchDocument();
  const users = new Map([
    ['th_usr_0123456789abcdefghijABCDEFGHIJ0123456789abcdefghi', { kind: 'user' as const, userId: 'usr_1' }],
  ]);
  const handlers = Object.fromEntries(
    operationIds.map((operationId) => [operationId, async () => ({ status: 200, body: {} })]),
  );
  handlers[benchedOperation] = (async (call: { body: unknown }) => ({
    status: 200,
    body: { echo: call.body },
  })) as never;
  const contract = createContract<{ kind: string }>({
    definition: document,
    handlers,
    identities: { userToken: 'user', adminSession: 'admin' },
    identify: async (bearer) => users.get(bearer) ?? null,
    guest: { kind: 'guest' },
  });
  const log = createLog({
    level: process.env['BENCH_LOG'] === 'on' ? 'info' : 'warn',
    redactor: createRedactor(),
  });
  const server = createServer({ contract, log, clock: systemClock, surface: 'gateway' });
  const { port } = await server.listen({ host: '127.0.0.1', port: 0 });
  process.send?.(port);
}

async function compare(rounds: number, seconds: number): Promise<void> {
  // Log lines are written to a file descriptor, as they would be to a supervisor's pipe.
  const sink = openSync('/dev/null', 'w');
  const servers = (['bare', 'kernel'] as const).map((name) => ({
    name,
    child: fork(self, [name], { stdio: ['ignore', sink, 'inherit', 'ipc'] }),
  }));
  try {
    const ports = await Promise.all(servers.map(({ child }) => readMessage(child)));
    const rates: Record<'bare' | 'kernel', number[]> = { bare: [], kernel: [] };
    const costs: Record<'bare' | 'kernel', number[]> = { bare: [], kernel: [] };
    for (const port of ports) await load(port, warmUpSeconds);
    for (let round = 0; round < rounds; round += 1) {
      for (const [index, { name, child }] of servers.entries()) {
        const usedBefore = await readUsedMicroseconds(child);
        const { perSecond, failures, answers } = await load(ports[index] as number, seconds);
        const usedMicroseconds = (await readUsedMicroseconds(child)) - usedBefore;
        costs[name].push(Math.round(usedMicroseconds / answers));
        if (failures > 0) throw new Error(`${name} failed ${failures} requests`);
        rates[name].push(perSecond);
      }
      console.log(
        `round ${round + 1}: bare ${rates.bare.at(-1)}/s, kernel ${rates.kernel.at(-1)}/s; ` +
          `processor time a request ${costs.bare.at(-1)} and ${costs.kernel.at(-1)} µs`,
      );
    }
    const [bareRate, kernelRate] = [median(rates.bare), median(rates.kernel)];
    const ratio = kernelRate / bareRate;
    const [bareCost, kernelCost] = [median(costs.bare), median(costs.kernel)];
    console.log(`processor time a request: bare ${bareCost} µs, kernel ${kernelCost} µs`);
    console.log(
      `median: bare ${bareRate}/s, kernel ${kernelRate}/s, ` +
        `ratio ${ratio.toFixed(2)} (target ${targetRatio})`,
    );
    process.exitCode = ratio >= targetRatio ? 0 : 1;
  } finally {
    for (const { child } of servers) child.kill();
    closeSync(sink);
  }
}

function usedMicroseconds(): number {
  const { user, system } = process.cpuUsage();
  return user + system;
}

async function readUsedMicroseconds(child: ChildProcess): Promise<number> {
  child.send('cpu');
  return readMessage(child);
}

async function readMessage(child: ChildProcess): Promise<number> {
  const [value] = await once(child, 'message');
  return value as number;
}

async function load(port: number, seconds: number): Promise<Load> {
  const script = fileURLToPath(new URL('./load.ts', import.meta.url));
  const child = spawn(process.execPath, [script, String(port), String(seconds), String(connections)], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let output = '';
  child.stdout.on('data', (chunk: Buffer) => {
    output += chunk.toString('utf8');
  });
  await once(child, 'close');
  return JSON.parse(output) as Load;
}

interface Load {
  answers: number;
  failures: number;
  perSecond: number;
}
