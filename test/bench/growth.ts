// The size of an agent's embedded database after many turns, after the deletion of all sessions, and after
// more turns:
//
//   node test/bench/growth.ts [--turns 10000] [--again 1000] [--rest 40]
//
// The agent is a process of its own with its defaults, and its model is scripted (agent-model.ts). Sessions
// have 10 turns each, and 8 of them run at a time. After a deletion the agent is idle for `--rest` seconds,
// so that the database may vacuum. At the end the database is compacted. Takes about five minutes on two
// cores.
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { AgentClient } from '@townhall/agent';
import { parseCommandLine } from '../../scripts/command-line.ts';
import { connect } from '../../src/kernel/data/database.ts';
import { silentLog } from '../support/template.ts';
import { root, startScriptedAgent, type ScriptedAgent } from './agent-process.ts';

const { values } = parseCommandLine(import.meta.filename, {
  options: {
    turns: { type: 'string', default: '10000' },
    again: { type: 'string', default: '1000' },
    rest: { type: 'string', default: '40' },
  },
});
const turns = Number(values.turns);
const turnsAfterDeletion = Number(values.again);
const restSeconds = Number(values.rest);
const turnsPerSession = 10;
const clientCount = 8;

const folder = mkdtempSync(join(tmpdir(), 'townhall-growth-'));

interface Sizes {
  /** Tables and indexes. */
  data: number;
  /** The write-ahead log, which PostgreSQL reuses. */
  wal: number;
}

function measure(): Sizes {
  const cluster = join(folder, 'agent.db', 'pg');
  const bytesOf = (path: string) =>
    readdirSync(path, { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .reduce((sum, entry) => {
        // PostgreSQL may have removed the file in the meantime.
        const size = statSync(join(entry.parentPath, entry.name), { throwIfNoEntry: false })?.size;
        return sum + (size ?? 0);
      }, 0);
  return { data: bytesOf(join(cluster, 'base')), wal: bytesOf(join(cluster, 'pg_wal')) };
}

const startedMs = performance.now();

async function pauseBetweenStages(): Promise<void> {
  await new Promise((resolve) => setTimeout(resolve, restSeconds * 1_000));
}

function report(stage: string): void {
  const { data, wal } = measure();
  const megabytes = (bytes: number) => (bytes / 1e6).toFixed(1);
  const seconds = Math.round((performance.now() - startedMs) / 1_000);
  console.log(`| ${stage} | ${megabytes(data)} | ${megabytes(wal)} | ${seconds} |`);
}

async function runTurns(client: AgentClient, count: number): Promise<void> {
  let remainingSessions = Math.ceil(count / turnsPerSession);
  const work = async () => {
    while (remainingSessions > 0) {
      remainingSessions -= 1;
      const { id: sessionId } = await client.sessions.create({});
      for (let turn = 0; turn < turnsPerSession; turn += 1)
        await client.sessions.prompt(
          { sessionId, text: `Turn ${turn}: TOK=40` },
          { headers: { prefer: 'wait=60' } },
        );
    }
  };
  await Promise.all(Array.from({ length: clientCount }, work));
}

async function removeAll(client: AgentClient): Promise<number> {
  let removedCount = 0;
  for (;;) {
    const { items } = await client.sessions.list({ limit: 100 });
    if (items.length === 0) return removedCount;
    for (const { id: sessionId } of items) await client.sessions.remove({ sessionId });
    removedCount += items.length;
  }
}

async function run({ client, stop }: ScriptedAgent): Promise<void> {
  console.log(
    '| stage | tables and indexes, MB | write-ahead log, MB | after, s |\n| --- | --- | --- | --- |',
  );
  report('empty');
  await runTurns(client, turns);
  report(`${turns} turns`);
  const sessions = await removeAll(client);
  await pauseBetweenStages();
  report(`all ${sessions} sessions deleted`);
  await runTurns(client, turnsAfterDeletion);
  report(`${turnsAfterDeletion} more turns`);
  await removeAll(client);
  await pauseBetweenStages();
  report('those deleted');
  await stop();
  const tables = await findLargestTables();
  report('agent stopped');
  const screen = execFileSync(
    process.execPath,
    [join(root, 'src/cli/main.ts'), 'db', 'compact', '--agent', '--data-dir', folder],
    { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] },
  );
  report('compacted');
  console.log(`${screen.trim()}\nThe largest tables before:\n${tables.join('\n')}`);
}

/** Describes the largest tables that are left in the database of the stopped agent. */
async function findLargestTables(): Promise<string[]> {
  const database = await connect({ path: join(folder, 'agent.db') }, { log: silentLog });
  try {
    const rows = await database.sql<{ name: string; bytes: number }[]>`
      select oid::regclass::text as name, pg_total_relation_size(oid)::float8 as bytes from pg_class
      where relkind = 'r' and relnamespace = 'agent'::regnamespace order by bytes desc limit 4`;
    return await Promise.all(
      rows.map(async ({ name, bytes }) => {
        const [count] = await database.sql.unsafe<{ rows: number }[]>(
          `select count(*)::integer as rows from ${name}`,
        );
        return `${name}: ${(bytes / 1e6).toFixed(1)} MB, ${count?.rows ?? 0} rows`;
      }),
    );
  } finally {
    await database.close();
  }
}

try {
  const agent = await startScriptedAgent(folder);
  try {
    await run(agent);
  } finally {
    await agent.stop();
  }
} finally {
  rmSync(folder, { recursive: true, force: true });
}
