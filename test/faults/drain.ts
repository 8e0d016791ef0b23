// SIGTERM while many streams run: new work is refused within a second, every stream comes to its own end or to the end
// that the rules give it, everything is settled, and the process ends with 0 within 30 seconds.
//
//   node test/faults/drain.ts [--streams 100] [--long 20] [--port PORT]
import { spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { request } from 'node:http';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { createGatewayClient } from '@townhall/gateway';

const { values } = parseArgs({ options: { streams: { type: 'string', default: '100' }, long: { type: 'string', default: '20' } } });
const count = Number(values.streams);
// So many would go on for longer than a drain lasts.
const longCount = Number(values.long);
const program = fileURLToPath(new URL('../../src/cli/main.ts', import.meta.url));
const folder = await mkdtemp(join(tmpdir(), 'townhall-drain-'));
const broken: string[] = [];
const promise = (holds: boolean, what: string): void => {
  if (!holds) broken.push(what);
};

const gateway = spawn(process.execPath, [program, 'gateway'], {
  cwd: folder,
  env: { PATH: process.env['PATH'], HOST: '127.0.0.1', PORT: '0', LOG_LEVEL: 'warn', RATE_LIMIT_USER: 'off', RATE_LIMIT_GUEST: 'off', STARTING_CREDITS: '1000000000' },
  stdio: ['ignore', 'pipe', 'inherit'],
});
const ended = new Promise<number | null>((resolve) => gateway.once('exit', (code) => resolve(code)));

try {
  const url = await new Promise<string>((resolve) => {
    let said = '';
    gateway.stdout.on('data', (piece: Buffer) => {
      said += piece.toString('utf8');
      const [, found] = /"url":"(http[^"]+)","msg":"listening"/.exec(said) ?? [];
      if (found !== undefined) resolve(found);
    });
  });
  const guest = createGatewayClient({ baseUrl: url });
  const { login_id } = await guest.accounts.startLogin({ provider: 'local', bureau_id: 'local' });
  const { user_token: token = '' } = await guest.accounts.getLoginResult({ login_id });

  const texts: string[] = [];
  let begun = 0;
  const streams = Array.from({ length: count }, (_, index) => {
    // The short ones end within the drain by themselves, the long ones have to be ended.
    const content = index < longCount ? `@delay 1000\n${'word '.repeat(120)}` : `@delay 250\n${'word '.repeat(40)}`;
    return new Promise<void>((resolve) => {
      const asked = request(`${url}/v1/ai/chat/completions`, { method: 'POST', agent: false, headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' } }, (response) => {
        begun += 1;
        texts[index] = '';
        response.setEncoding('utf8');
        response.on('data', (piece: string) => (texts[index] += piece));
        response.on('close', () => resolve());
      });
      asked.on('error', () => resolve());
      asked.end(JSON.stringify({ model: 'local/echo', stream: true, messages: [{ role: 'user', content }] }));
    });
  });
  while (begun < count) await new Promise((resolve) => setTimeout(resolve, 20));
  await new Promise((resolve) => setTimeout(resolve, 500));

  const signalled = performance.now();
  gateway.kill('SIGTERM');
  // New work: a fresh connection, tried until it is turned away.
  let refusedMs = Infinity;
  for (;;) {
    const { port, hostname } = new URL(url);
    const isRefused = await new Promise<boolean>((resolve) => {
      const socket = connect(Number(port), hostname, () => {
        socket.destroy();
        resolve(false);
      });
      socket.once('error', () => resolve(true));
    });
    if (isRefused) refusedMs = performance.now() - signalled;
    if (isRefused || performance.now() - signalled > 5_000) break;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  promise(refusedMs <= 1_000, `new work was refused after ${Math.round(refusedMs)} ms`);
  await Promise.all(streams);
  const code = await ended;
  const endedMs = performance.now() - signalled;
  const whole = texts.filter((text) => text?.endsWith('data: [DONE]\n\n')).length;
  const byRule = texts.filter((text) => text !== undefined && !text.endsWith('data: [DONE]\n\n') && /"code":"draining"/.test(text)).length;
  promise(code === 0, `the process ended with ${code}`);
  promise(endedMs <= 30_000, `the process ended after ${Math.round(endedMs)} ms`);
  promise(whole + byRule === count, `${count - whole - byRule} streams were cut in silence`);
  promise(whole >= count - longCount, `only ${whole} of the streams that could end did`);
  // What was charged agrees with what was recorded, and nothing is held any more.
  const ledger = spawn(process.execPath, [program, 'ledger', 'verify', '--json'], { cwd: folder, env: { PATH: process.env['PATH'] }, stdio: ['ignore', 'inherit', 'inherit'] });
  const ledgerCode = await new Promise<number | null>((resolve) => ledger.once('exit', (exit) => resolve(exit)));
  promise(ledgerCode === 0, `the ledger does not agree (${ledgerCode})`);
  console.log(JSON.stringify({ streams: count, whole, endedByRule: byRule, refusedMs: Math.round(refusedMs), endedMs: Math.round(endedMs), code, broken }));
} finally {
  gateway.kill('SIGKILL');
  await rm(folder, { recursive: true, force: true });
}
process.exitCode = broken.length > 0 ? 1 : 0;
