// Money through the front door: gateways as processes, their provider scripted, every call over HTTP. First the matrix:
// a balance of 1, 100 and 500 credits, calls whose price of 1 or 10 is known beforehand (speech by the character), 50 to
// 1,000 at once over 1, 2 and 3 gateways: exactly floor(credits / price) succeed, the rest are 402. Then the storm:
// a gateway killed every 150 to 550 ms, and the database stopped without a goodbye now and then, under whole and streamed
// chats whose tokens the provider counts. What a client holds whole is recorded as completed and charged as the provider
// counted it; nothing is charged twice; what the provider did not produce is free; nothing stays held.
// Exits 1 on a broken promise.
//
//   node test/fault-injection/money.ts [SEED] [KILLS=40] [STOPS=5]
//   FAULTS_ENGINE=embedded node test/fault-injection/money.ts [SEED] [KILLS=40]     one process on the embedded database
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { createGatewayClient, type GatewayClient } from '@townhall/gateway';
import { connect, type Database } from '../../src/kernel/data/database.ts';
import { startServer, type PostgresServer } from '../support/postgres-server.ts';
import { startProvider } from '../support/provider.ts';
import { silentLog } from '../support/template.ts';
import { chance } from './agent-world.ts';

const isEmbedded = process.env['FAULTS_ENGINE'] === 'embedded';
const [seed = Math.floor(Math.random() * 2 ** 31), kills = 40, stops = 5] = process.argv.slice(2).map(Number);
const random = chance(seed);
console.log(`seed ${seed}, ${isEmbedded ? 'the embedded database' : 'PostgreSQL'}`);

const administrator = { admin_id: 'admin', password: 'a password for the storm alone' };
const folder = await mkdtemp(join(tmpdir(), 'townhall-money-'));
const provider = await startProvider();
const modelsFile = join(folder, 'models.json');
const priced = (rates: object) => ({ rates, max_output_tokens: 64 });
await writeFile(
  modelsFile,
  provider.modelsFile(
    {},
    {
      models: [
        {
          id: 'acme/speaker',
          provider: 'acme',
          upstream_model: 'speech',
          modalities: ['tts'],
          rates: { speech_character: 1 },
        },
        ...[2, 5, 20].map((chunks) => ({
          id: `acme/fast-${chunks}`,
          provider: 'acme',
          upstream_model: `ok?chunks=${chunks}&gap=10`,
          modalities: ['text', 'stream', 'openai'],
          ...priced({ input: 1_000_000, output: 1_000_000 }),
        })),
      ],
    },
  ),
);
const server: PostgresServer | null = isEmbedded ? null : await startServer();

interface Gateway {
  process: ChildProcess;
  url: string;
  userToken: string;
}

async function startGateway(): Promise<Gateway> {
  const child = spawn(process.execPath, [join(import.meta.dirname, '../support/gateway-process.ts')], {
    env: {
      PATH: process.env['PATH'] ?? '',
      HOME: folder,
      HOST: '127.0.0.1',
      PORT: '0',
      LOG_LEVEL: 'error',
      MODELS_FILE: modelsFile,
      ACME_API_KEY: 'key-of-the-storm',
      ...(server === null
        ? { DATABASE_PATH: join(folder, 'townhall.db') }
        : {
            DATABASE_URL: server.url,
            JOURNAL_PATH: join(folder, 'journal'),
            STORAGE_PATH: join(folder, 'media'),
          }),
      TOWNHALL_MASTER_KEY: Buffer.alloc(32, 'storm ').toString('base64'),
      ADMIN_ID: administrator.admin_id,
      ADMIN_PASSWORD: administrator.password,
      RATE_LIMIT_USER: 'off',
      RATE_LIMIT_GUEST: 'off',
      RATE_LIMIT_ADMIN: 'off',
      RATE_LIMIT_LOGIN: 'off',
      STARTING_CREDITS: '0',
    },
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  const [line] = (await Promise.race([
    once(createInterface(child.stdout), 'line'),
    once(child, 'exit').then(() => ['{}']),
  ])) as [string];
  return { process: child, ...(JSON.parse(line) as { url: string; userToken: string }) };
}

async function kill(gateway: Gateway, signal: 'SIGKILL' | 'SIGTERM'): Promise<void> {
  if (gateway.process.exitCode !== null || gateway.process.signalCode !== null) return;
  gateway.process.kill(signal);
  await once(gateway.process, 'exit');
}

const failures: string[] = [];
function hold(isHeld: boolean, what: string): void {
  console.log(`${isHeld ? 'ok    ' : 'BROKEN'} ${what}`);
  if (!isHeld) failures.push(what);
}

async function makeUser(admin: GatewayClient, name: string, credits: number): Promise<string> {
  const { user_token: token, user_id: userId } = await admin.accounts.issueToken({
    bureau_id: 'local',
    external_id: name,
  });
  if (credits > 0) await admin.credits.grantCredits({ user_id: userId, credits, reason: 'for the storm' });
  return token;
}

async function matrix(
  gateways: readonly Gateway[],
  admin: GatewayClient,
  shape: { credits: number; price: number; calls: number },
): Promise<void> {
  const { credits, price, calls } = shape;
  const token = await makeUser(admin, `matrix-${gateways.length}-${credits}-${price}-${calls}`, credits);
  const statuses = await Promise.all(
    Array.from({ length: calls }, async (_, n) => {
      const { url } = gateways[n % gateways.length] as Gateway;
      const answer = await fetch(`${url}/v1/ai/tts`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', authorization: `Bearer ${token}` },
        body: JSON.stringify({ model: 'acme/speaker', text: 'x'.repeat(price) }),
      });
      await answer.arrayBuffer();
      return answer.status;
    }),
  );
  const counts = Object.fromEntries(
    [...Map.groupBy(statuses, (status) => status)].map(([status, all]) => [status, all.length]),
  );
  const granted = Math.min(Math.floor(credits / price), calls);
  const { available, held } = await createGatewayClient({
    baseUrl: (gateways[0] as Gateway).url,
    token,
  }).credits.getBalance();
  const isRight =
    (counts[200] ?? 0) === granted &&
    (counts[402] ?? 0) === calls - granted &&
    available === credits - granted * price &&
    held === 0;
  hold(
    isRight,
    `${gateways.length} gateways, ${credits} credits, price ${price}, ${calls} at once: ${JSON.stringify(counts)}, ${granted} expected, ${available} left, ${held} held`,
  );
}

interface Acknowledged {
  requestId: string;
  inputTokens: number;
  outputTokens: number;
}

/** One chat; what the client holds whole of it, or null when it holds nothing whole. */
async function chat(
  url: string,
  token: string,
  model: string,
  stream: boolean,
): Promise<Acknowledged | null> {
  const answer = await fetch(`${url}/v1/ai/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${token}` },
    body: JSON.stringify({
      model,
      stream,
      ...(stream ? { stream_options: { include_usage: true } } : {}),
      messages: [{ role: 'user', content: 'How much is the hall?' }],
    }),
    signal: AbortSignal.timeout(15_000),
  });
  const text = await answer.text();
  if (answer.status !== 200 || (stream && !text.endsWith('data: [DONE]\n\n'))) return null;
  const usage = JSON.parse(/"usage":(\{[^}]*\})/.exec(text)?.[1] ?? 'null') as {
    prompt_tokens: number;
    completion_tokens: number;
  } | null;
  if (usage === null) return null;
  return {
    requestId: answer.headers.get('x-request-id') ?? '',
    inputTokens: usage.prompt_tokens,
    outputTokens: usage.completion_tokens,
  };
}

async function storm(gateways: Gateway[], tokens: readonly string[]): Promise<Acknowledged[]> {
  const acknowledged: Acknowledged[] = [];
  let isOver = false;
  const load = Array.from({ length: 20 }, async () => {
    while (!isOver) {
      const { url } = gateways[Math.floor(Math.random() * gateways.length)] as Gateway;
      const model = `acme/fast-${[2, 5, 20][Math.floor(Math.random() * 3)]}`;
      const got =
        url === undefined
          ? null
          : await chat(
              url,
              tokens[Math.floor(Math.random() * tokens.length)] as string,
              model,
              Math.random() < 0.5,
            ).catch(() => null);
      if (got === null) await sleep(50);
      else acknowledged.push(got);
    }
  });
  const stopAt = new Set(
    Array.from({ length: server === null ? 0 : stops }, (_, n) =>
      Math.floor(((n + 1) * kills) / (stops + 1)),
    ),
  );
  for (let round = 0; round < kills; round += 1) {
    await sleep(150 + random() * 400);
    // A lone gateway is to be killed at its work and not while it opens its data.
    if (isEmbedded) await sleep(300);
    if (server !== null && stopAt.has(round)) {
      await server.crash();
      await sleep(500 + random() * 1_000);
      await server.startAgain();
    }
    const n = Math.floor(random() * gateways.length);
    await kill(gateways[n] as Gateway, 'SIGKILL');
    const starting = startGateway();
    // The others go on while it starts; a lone one is waited for.
    if (gateways.length === 1) gateways[n] = await starting;
    else {
      const others = gateways.filter((_, index) => index !== n);
      gateways[n] = others[0] as Gateway;
      gateways[n] = await starting;
    }
  }
  await sleep(1_000);
  isOver = true;
  await Promise.all(load);
  return acknowledged;
}

async function judge(
  database: Database,
  acknowledged: readonly Acknowledged[],
  userIds: readonly string[],
): Promise<void> {
  const records = await database.sql<
    { requestId: string; outcome: string; credits: bigint; tokens: bigint }[]
  >`
    select request_id as "requestId", outcome, credits, input_tokens + output_tokens as tokens from gateway.usage_records where action <> 'tts' and user_id = any(${[...userIds]})`;
  const byRequest = Map.groupBy(records, ({ requestId }) => requestId);
  const lostCalls = acknowledged.filter(
    ({ requestId }) => !byRequest.get(requestId)?.some(({ outcome }) => outcome === 'completed'),
  );
  const wrong = acknowledged.filter(({ requestId, inputTokens, outputTokens }) => {
    const own = byRequest.get(requestId) ?? [];
    return own.length === 1 && own[0]?.credits !== BigInt(inputTokens + outputTokens);
  });
  const double = [...byRequest.values()].filter((own) => own.length > 1);
  const charged = records.reduce((total, { credits }) => total + credits, 0n);
  const chats = provider.calls.filter(({ path }) => path.endsWith('/chat/completions'));
  const produced = chats.reduce(
    (total, { tokens, finishedAt }) => total + 10 + (finishedAt === undefined ? tokens : Math.max(tokens, 4)),
    0,
  );
  const [balance] = await database.sql<{ spent: bigint; held: bigint }[]>`
    select sum(1000000000 - posted)::bigint as spent, sum(held)::bigint as held from gateway.credits_accounts where account_id = any(${[...userIds]})`;
  const [entries] = await database.sql<
    { sum: bigint }[]
  >`select coalesce(sum(amount), 0)::bigint as sum from gateway.credits_entries`;
  hold(
    acknowledged.length > 0 && lostCalls.length === 0,
    `${acknowledged.length} answers held whole by clients, ${lostCalls.length} of them not recorded as completed`,
  );
  hold(wrong.length === 0, `${wrong.length} of them charged otherwise than their usage says`);
  hold(double.length === 0, `${double.length} calls charged twice`);
  hold(
    Number(charged) <= produced,
    `${charged} credits charged for ${produced} that the provider produced over ${chats.length} calls`,
  );
  hold(balance?.spent === charged, `the balances lost ${balance?.spent}, the records say ${charged}`);
  hold(entries?.sum === 0n, `all entries add up to ${entries?.sum}`);
}

let gateways: Gateway[] = [];
try {
  gateways = [await startGateway()];
  const first = gateways[0] as Gateway;
  const guest = createGatewayClient({ baseUrl: first.url });
  const admin = createGatewayClient({
    baseUrl: first.url,
    token: (await guest.admin.login(administrator)).session_token,
  });
  for (const count of isEmbedded ? [1] : [1, 2, 3]) {
    while (gateways.length < count) gateways.push(await startGateway());
    for (const credits of [1, 100, 500])
      for (const price of [1, 10])
        for (const calls of [50, 300, 1_000]) await matrix(gateways, admin, { credits, price, calls });
  }

  const tokens: string[] = [];
  const userIds: string[] = [];
  for (let n = 0; n < 10; n += 1) {
    const token = await makeUser(admin, `storm-${n}`, 1_000_000_000);
    tokens.push(token);
    userIds.push((await createGatewayClient({ baseUrl: first.url, token }).credits.getBalance()).user_id);
  }
  provider.reset();
  while (gateways.length > (isEmbedded ? 1 : 2)) await kill(gateways.pop() as Gateway, 'SIGKILL');
  const acknowledged = await storm(gateways, tokens);
  const endedMs = performance.now();
  for (const gateway of gateways) await kill(gateway, 'SIGKILL');
  // One gateway is left, which finds what the others held.
  gateways = [await startGateway()];
  const alone = gateways[0] as Gateway;
  const survivor = createGatewayClient({ baseUrl: alone.url, token: tokens[0] as string });
  const heldNow = async (): Promise<number> => {
    const all = await Promise.all(
      tokens.map((token) => createGatewayClient({ baseUrl: alone.url, token }).credits.getBalance()),
    );
    return all.reduce((total, { held }) => total + held, 0);
  };
  await survivor.credits.getBalance();
  while ((await heldNow()) > 0 && performance.now() - endedMs < 75_000) await sleep(500);
  const heldCredits = await heldNow();
  hold(
    heldCredits === 0,
    `${heldCredits} credits held ${Math.round((performance.now() - endedMs) / 1000)} s after the storm`,
  );
  await kill(alone, 'SIGTERM');
  gateways = [];
  const database = await connect(
    server === null ? { path: join(folder, 'townhall.db') } : { url: server.url },
    { log: silentLog },
  );
  try {
    await judge(database, acknowledged, userIds);
  } finally {
    await database.close();
  }
} finally {
  for (const gateway of gateways) await kill(gateway, 'SIGKILL');
  await provider.close();
  await server?.stop();
  await rm(folder, { recursive: true, force: true });
}
console.log(failures.length === 0 ? `held, seed ${seed}` : `broken, seed ${seed}`);
process.exit(failures.length === 0 ? 0 : 1);
