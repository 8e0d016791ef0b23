// Prism between the code samples and the servers: it validates each request and each response against
// the documents, independently of our validator, and reports differences in the header `sl-violations`.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { adaptSample, prepareSample, runCurl, sampleAgent, sampleTokens } from '../docs/sample-runner.ts';
import { sampledOperations } from '../docs/sampled-operations.ts';
import { startSampleServers, type SampleServers } from '../docs/sample-servers.ts';
import { freePort } from '../support/free-port.ts';
import { until } from '../support/until.ts';
import { installTool } from './packages.ts';

const root = path.join(import.meta.dirname, '../..');
const folder = mkdtempSync(path.join(root, 'build/proxied-'));
const startMs = 100_000;
const processes: ChildProcess[] = [];
const proxies = new Map<string, string>();
let servers: SampleServers;

beforeAll(async () => {
  const tool = path.join(installTool('prism'), 'node_modules/@stoplight/prism-cli/dist/index.js');
  servers = await startSampleServers();
  for (const surface of ['gateway', 'agent', 'agent-classic'])
    proxies.set(surface, await startProxy(tool, surface));
});
afterAll(async () => {
  await Promise.all(processes.map(stop));
  await servers?.close();
  rmSync(folder, { recursive: true, force: true });
});

function upstreamOf(surface: string): string {
  return surface === 'gateway' ? servers.gateway.url : sampleAgent(servers, { surface }).url;
}

async function startProxy(tool: string, surface: string): Promise<string> {
  const port = await freePort();
  const document = path.join(root, 'src/contract', surface, 'bundle.json');
  const child = spawn(
    process.execPath,
    [tool, 'proxy', document, upstreamOf(surface), '--port', String(port), '--cors', 'false'],
    { stdio: ['ignore', 'ignore', 'inherit'] },
  );
  processes.push(child);
  const url = `http://127.0.0.1:${port}`;
  // Prism has no ready signal that another process could wait for.
  await until(() => answers(`${url}/health`), `Prism listens at ${url}`, startMs);
  return url;
}

/** Whether a server answers with any status. */
async function answers(url: string): Promise<boolean> {
  const response = await fetch(url).catch(() => undefined);
  await response?.body?.cancel();
  return response !== undefined;
}

async function stop(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exit = once(child, 'exit');
  child.kill();
  await exit;
}

/** The violations that the proxy reported for the exchange whose headers are in the file. */
function violationsIn(headerFile: string): string[] {
  return Array.from(readFileSync(headerFile, 'utf8').matchAll(/^sl-violations: (.*)$/gim), (match) =>
    (match[1] ?? '').trim(),
  );
}

describe('Prism between a caller and the servers', () => {
  // Prism parses a stream of events as one JSON value, so
  // test/contract/sse-conformance.ts checks the streams.
  const isStream = (source: string) => source.startsWith('curl -N');
  // Prism forwards a form as UTF-8 text, which destroys the bytes of a picture.
  const hasPicture = (id: string) => id.startsWith('ai.generateClientImageEdits');
  const entries = sampledOperations().filter(({ id }) => !hasPicture(id));
  const samples = entries.flatMap((entry) =>
    entry.samples
      .filter(({ label, source }) => label === 'curl' && !isStream(source))
      .map(({ source }) => [`${entry.surface} ${entry.id}`, entry, source] as const),
  );

  test('receives the samples of most operations', () => {
    expect(samples.length).toBeGreaterThan(130);
  });

  test.each(samples)('finds no violation in %s', async (_title, entry, source) => {
    const preparation = await prepareSample(servers, entry);
    const proxy = proxies.get(entry.surface) ?? '';
    const text = adaptSample(source, servers, entry, preparation).replaceAll(
      upstreamOf(entry.surface),
      proxy,
    );
    // Otherwise the sample would call the server itself, and its answer could name no violation.
    expect(text).toContain(proxy);
    const env = { ...sampleTokens(servers, entry), ...preparation.tokens };
    const headerFile = path.join(folder, 'headers');
    await runCurl(text, { cwd: folder, env, headerFile });
    expect(violationsIn(headerFile)).toEqual([]);
  });

  test('names a request that the document does not allow', async () => {
    const answer = await fetch(`${proxies.get('gateway')}/v1/ai/text`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${servers.gateway.userToken}` },
      body: JSON.stringify({ model: 'local/echo', prompt: 7 }),
    });
    await answer.body?.cancel();
    expect(answer.headers.get('sl-violations')).toContain('prompt');
  });
});
