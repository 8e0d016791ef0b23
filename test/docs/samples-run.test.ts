// Every code sample of the contract, run as a person would run it, against running servers. A sample succeeds when the
// answer is a success: curl fails for any other (--fail), the client and urllib throw.
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { sampledOperations, type SampledOperationEntry } from './sampled-operations.ts';
import { preparations, type Preparation } from './sample-preparations.ts';
import { startSampleServers, type SampleServers } from './sample-servers.ts';

const run = promisify(execFile);
// Below the repository, so that samples find the packages that they import.
const folder = mkdtempSync(path.join(import.meta.dirname, '../../build/samples-'));
let servers: SampleServers;
let count = 0;
beforeAll(async () => {
  servers = await startSampleServers();
});
afterAll(async () => {
  await servers?.close();
  rmSync(folder, { recursive: true, force: true });
});
afterEach(() => {
  vi.unstubAllEnvs();
});

const isLabel = (language: string) => (label: string) =>
  label === language || label.startsWith(`${language} (`);

describe.each(['curl', 'TypeScript', 'Python'])('the samples for %s', (language) => {
  const samples = sampledOperations().flatMap((entry) =>
    entry.samples
      .filter(({ label }) => isLabel(language)(label))
      .map(({ label, source }) => [`${entry.surface} ${entry.id} in ${label}`, entry, source] as const),
  );

  test.each(samples)('succeed: %s', async (_title, entry, source) => {
    const preparation = await prepare(entry);
    const text = adapt(source, entry, preparation);
    const tokens = { ...tokensOf(entry), ...preparation.tokens };
    const output = await runSample(language, text, tokens);
    // Speech, pictures and removals print nothing or little; everything else shows its answer.
    expect(output, entry.id).not.toMatch(/^\{"error"/);
  });
});

const agentOf = ({ surface }: SampledOperationEntry) =>
  servers.agents[surface === 'agent-classic' ? 'classic' : 'current'];

async function prepare(entry: SampledOperationEntry): Promise<Preparation> {
  const name = `${entry.surface.replace('-classic', '')}/${entry.id}`;
  return (await preparations[name]?.(servers, agentOf(entry))) ?? {};
}

/** The sample at the servers of this run and with what was prepared for it. */
function adapt(source: string, entry: SampledOperationEntry, { replace = {} }: Preparation): string {
  const pairs = Object.entries({
    'http://127.0.0.1:43127': servers.gateway.url,
    'http://127.0.0.1:5314': agentOf(entry).url,
    ...replace,
  });
  return pairs.reduce((text, [from, to]) => text.replaceAll(from, to), source);
}

function tokensOf(entry: SampledOperationEntry): Record<string, string> {
  return {
    TOWNHALL_TOKEN: servers.gateway.userToken,
    TOWNHALL_ADMIN_TOKEN: servers.gateway.adminToken,
    TOWNHALL_AGENT_TOKEN: agentOf(entry).token,
  };
}

/** What it printed; rejects when the sample fails. */
async function runSample(language: string, text: string, tokens: Record<string, string>): Promise<string> {
  if (language === 'TypeScript') return runTypeScript(text, tokens);
  if (language === 'Python') return runProgram('python3', ['-c', text], tokens);
  return runProgram('sh', ['-c', `curl() { command curl -sS --fail-with-body "$@"; }\n${text}`], tokens);
}

async function runProgram(command: string, words: string[], tokens: Record<string, string>): Promise<string> {
  const { stdout } = await run(command, words, {
    cwd: folder,
    env: { PATH: process.env['PATH'] ?? '', ...tokens },
    timeout: 60_000,
    maxBuffer: 64 * 1024 * 1024,
  });
  return stdout;
}

async function runTypeScript(text: string, tokens: Record<string, string>): Promise<string> {
  for (const [name, value] of Object.entries(tokens)) vi.stubEnv(name, value);
  count += 1;
  const file = path.join(folder, `sample-${count}.ts`);
  writeFileSync(file, text.replace("writeFile('answer'", `writeFile('${path.join(folder, 'answer')}'`));
  const print = vi.spyOn(console, 'log').mockImplementation(() => {});
  const write = vi.spyOn(process.stdout, 'write').mockImplementation(() => true);
  try {
    await import(/* @vite-ignore */ pathToFileURL(file).href);
    return JSON.stringify([...print.mock.calls, ...write.mock.calls]);
  } finally {
    print.mockRestore();
    write.mockRestore();
  }
}
