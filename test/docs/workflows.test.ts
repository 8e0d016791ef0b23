// The workflow documents of openapi/, run by a tool that knows only the contract.
// test/contract/first-five-minutes.test.ts runs the workflow for the local edition; the workflows here need
// a payment provider, a mailbox or a model that calls a tool.
import { execFile } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { runRedocly } from '../../scripts/generate/tools.ts';
import { newAccount, samplePassword } from './sample-preparations.ts';
import { administratorPassword, startSampleServers, type SampleServers } from './sample-servers.ts';

const root = path.join(import.meta.dirname, '../..');
const documents = readdirSync(path.join(root, 'openapi')).filter((name) => name.endsWith('.arazzo.yaml'));
let servers: SampleServers;
beforeAll(async () => {
  servers = await startSampleServers();
});
afterAll(() => servers?.close());

type Inputs = Record<string, string>;
const userToken = (): Inputs => ({ userToken: servers.gateway.userToken });
const agentToken = (): Inputs => ({ agentToken: servers.agents.current.token });

interface Workflow {
  inputs: () => Inputs | Promise<Inputs>;
  /** A step outside of the contract, which runs beside the workflow. */
  runBeside?: () => Promise<void>;
}

const workflows: Record<string, Workflow> = {
  'approvals.arazzo.yaml': { inputs: () => ({ ...agentToken(), instruction: 'Act now' }) },
  'buy-credits.arazzo.yaml': { inputs: userToken, runBeside: () => payCheckout() },
  'deploy.arazzo.yaml': {
    inputs: () => ({
      adminId: 'admin',
      password: administratorPassword,
      serverUrl: 'https://project.example.test',
    }),
  },
  'fork-session.arazzo.yaml': { inputs: agentToken },
  'login.arazzo.yaml': {
    inputs: async () => ({
      bureauId: 'shop',
      email: await newAccount(servers),
      password: samplePassword,
    }),
  },
  'media-jobs.arazzo.yaml': { inputs: userToken },
};

/** Pays in the checkout page; the provider then sends its webhook. */
async function payCheckout(): Promise<void> {
  await expect.poll(() => servers.stripe.sessions.size).toBeGreaterThan(0);
  const [session] = [...servers.stripe.sessions.values()];
  const { body, signature } = servers.stripe.sign(servers.stripe.pay(session?.id ?? ''));
  const answer = await fetch(`${servers.gateway.url}/v1/payments/webhook/stripe`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'stripe-signature': signature },
    body,
  });
  expect(answer.status).toBe(200);
}

describe('the workflow documents', () => {
  test('are valid', { timeout: 120_000 }, async () => {
    const { code, stderr } = await runRedocly(root, ['lint', ...documents.map((name) => `openapi/${name}`)]);
    expect(`${code}\n${stderr}`).toMatch(/^0\n/);
  });

  test('are all listed here', () => {
    expect(documents).toEqual([...Object.keys(workflows), 'first-five-minutes.arazzo.yaml'].sort());
  });

  test.each(Object.entries(workflows))(
    'pass: %s',
    { timeout: 180_000 },
    async (name, { inputs, runBeside }) => {
      const file = `openapi/${name}`;
      const [output] = await Promise.all([runWorkflow(file, await inputs()), runBeside?.()]);
      expect(output).toMatch(/Workflows: 1 passed, 1 total/);
    },
  );
});

/** Returns what Redocly prints, even if the workflow fails. */
async function runWorkflow(file: string, inputs: Inputs): Promise<string> {
  const redocly = path.join(root, 'node_modules/@redocly/cli/bin/cli.js');
  const args = [
    ...serverFlags(file),
    ...Object.entries(inputs).flatMap(([input, value]) => ['--input', `${input}=${value}`]),
  ];
  const { stdout, stderr } = await promisify(execFile)(
    process.execPath,
    [redocly, 'respect', file, ...args],
    {
      cwd: root,
      env: { ...process.env, REDOCLY_TELEMETRY: 'off', NO_COLOR: '1' },
      maxBuffer: 64 * 1024 * 1024,
    },
  ).catch((error: unknown) => error as { stdout: string; stderr: string });
  return `${stdout}${stderr}`;
}

/** The addresses of the servers that the document names. */
function serverFlags(file: string): string[] {
  const document = readFileSync(path.join(root, file), 'utf8');
  const [, sources = ''] = /sourceDescriptions:([\s\S]*?)workflows:/.exec(document) ?? [];
  const urls = { gateway: servers.gateway.url, agent: servers.agents.current.url };
  return Object.entries(urls)
    .filter(([source]) => sources.includes(`name: ${source}`))
    .flatMap(([source, url]) => ['--server', `${source}=${url}`]);
}
