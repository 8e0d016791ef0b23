// Runs the samples of the guides against running servers: every block of curl or TypeScript that is not
// part of an example. A sample succeeds when no answer is an error. The examples that guides show run as
// programs.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { AgentError } from '@townhall/agent';
import { GatewayError } from '@townhall/gateway';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { administratorPassword, startSampleServers, type SampleServers } from './sample-servers.ts';
import { createSampleFolder, runCurl, runProgram } from './sample-runner.ts';

const root = path.join(import.meta.dirname, '../..');
const folder = createSampleFolder();

interface GuideSample {
  /** The guide and the sample's number in it, such as `credits.md 2`. */
  name: string;
  language: string;
  code: string;
}

const guides = [
  'README.md',
  ...readdirSync(path.join(root, 'docs/guides')).map((name) => `docs/guides/${name}`),
];
const samples: GuideSample[] = guides.flatMap((guide) =>
  [
    ...readFileSync(path.join(root, guide), 'utf8').matchAll(
      /(<!-- example: [^\n]*\n)?^```(sh|tsx?)\n([\s\S]*?)\n```$/gm,
    ),
  ]
    .filter(
      ([, marker, language = '', code = '']) =>
        marker === undefined && (language !== 'sh' || code.includes('curl ')),
    )
    .map(([, , language = '', code = ''], index) => ({
      name: `${path.basename(guide)} ${index + 1}`,
      language,
      code,
    })),
);

/** Samples that cannot run here, with the reason. All of them are type-checked. */
const notRun: Readonly<Record<string, string>> = {
  'agent-in-a-product.md 1': 'the program that it starts runs below',
  'agent.md 2': 'no attachment has this id; the sample of its operation runs',
  'agent.md 3': 'a stream without an end; test/agent/sessions/all-sessions.test.ts follows it',
  'clients.md 5': 'a part of a component, with an ellipsis; test/clients has its transport',
  'install.md 1': 'it listens on a fixed port; test/packages/installed.test.ts runs such a program',
  'login-and-tokens.md 4': 'a page of a browser; test/browser/login-page.test.ts runs it',
  'login-and-tokens.md 5': 'a page of a browser; test/browser/login.test.ts runs it',
  'login-and-tokens.md 6': 'a page of a browser; test/clients/web-login.test.ts runs it',
};

let servers: SampleServers;
beforeAll(async () => {
  servers = await startSampleServers();
  const { gateway, agents } = servers;
  // The globals of scripts/docs/sample-world.ts.
  Object.assign(globalThis, {
    client: gateway.user,
    user: gateway.user,
    admin: gateway.admin,
    agent: agents.current.client,
    GatewayError,
    AgentError,
    show: () => {},
    askThePerson: answerLogin,
  });
  writeFileSync(
    path.join(folder.path, 'boat.png'),
    Buffer.from(
      'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==',
      'base64',
    ),
  );
});
afterAll(async () => {
  await servers?.close();
  folder.remove();
});

const newcomer = 'guide@shop.example';

/** A person who logs in by a code that was sent by mail. */
async function answerLogin(inputs: readonly { name: string }[]): Promise<Record<string, string>> {
  const values: Record<string, string> = {};
  for (const { name } of inputs)
    values[name] = name === 'email' ? newcomer : (await servers.mailbox.letterTo(newcomer)).code;
  return values;
}

async function storeResponse(): Promise<string> {
  const request = { model: 'local/echo', input: 'Good morning', store: true };
  return (await servers.gateway.user.ai.createResponse(request)).id;
}

async function startLogin(): Promise<string> {
  const request = { provider: 'local', bureau_id: 'local' };
  return (await servers.gateway.guest.accounts.startLogin(request)).login_id;
}

/** The sample with the addresses, ids and secrets of this run. */
async function adapt({ code }: GuideSample): Promise<string> {
  const { gateway, agents } = servers;
  const values: Record<string, () => Promise<string> | string> = {
    'http://127.0.0.1:43127': () => gateway.url,
    'http://127.0.0.1:5314': () => agents.current.url,
    'process.env.TOWNHALL_TOKEN': () => `'${gateway.userToken}'`,
    "from 'townhall'": () => `from '${path.join(root, 'src/index.ts')}'`,
    'TOKEN=$(cat data/local.token); AGENT=$(cat data/agent/agent.token)': () => '',
    '"password":"…"': () => `"password":"${administratorPassword}"`,
    'sk-…': () => 'sk-guide',
    resp_01jd6zv0c5e9fsr8m2w4x1k7qe: storeResponse,
    'lgn_…': startLogin,
    'usr_…': async () => (await gateway.user.accounts.getMe()).user.user_id,
  };
  let text = code;
  for (const [from, value] of Object.entries(values))
    if (text.includes(from)) text = text.replaceAll(from, await value());
  return text;
}

describe('a sample of a guide', () => {
  test('is excluded only by a name that exists', () => {
    const names = samples.map(({ name }) => name);
    expect(Object.keys(notRun).filter((name) => !names.includes(name))).toEqual([]);
    expect(samples.length - Object.keys(notRun).length).toBeGreaterThan(35);
  });

  test.each(samples.filter(({ name }) => !(name in notRun)).map((sample) => [sample.name, sample] as const))(
    'succeeds: %s',
    async (_name, sample) => {
      const text = await adapt(sample);
      const run = sample.language === 'sh' ? runShell : folder.runModule;
      expect(await run(text)).not.toMatch(/"error":\s*\{/);
    },
  );
});

/** Returns the output; rejects when an answer is not a success. */
async function runShell(text: string): Promise<string> {
  const { gateway, agents } = servers;
  const env = {
    TOKEN: gateway.userToken,
    AGENT: agents.current.token,
    BASE_URL: gateway.url,
  };
  // Without `set -e` only the exit code of the last call would count.
  return runCurl(`set -e\n${text}`, { cwd: folder.path, env });
}

describe('an example of a guide', () => {
  test('streams an answer in Python', async () => {
    const output = await runProgram('python3', [path.join(root, 'examples/stream.py'), 'How do I log in?'], {
      cwd: folder.path,
      env: { TOWNHALL_URL: servers.gateway.url, TOWNHALL_TOKEN: servers.gateway.userToken },
    });
    expect(output).toContain('From the documentation');
  });

  test('is the backend of a product with an agent', async () => {
    const child = spawn(process.execPath, [path.join(root, 'examples/agent-in-a-product.ts')], {
      env: {
        PORT: '0',
        TOWNHALL_AGENT_URL: servers.agents.current.url,
        TOWNHALL_AGENT_TOKEN: servers.agents.current.token,
      },
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const exit = once(child, 'exit');
    try {
      const [line] = (await once(createInterface(child.stdout), 'line')) as [string];
      const [url = ''] = /http\S+/.exec(line) ?? [];
      const chat = (customer?: string) =>
        fetch(`${url}/chat`, {
          method: 'POST',
          headers: customer === undefined ? {} : { 'x-customer': customer },
          body: 'Good morning?',
        });
      expect((await chat()).status).toBe(401);
      // The second answer is in the same conversation and does not repeat the first.
      for (const round of [1, 2]) {
        const events = (await (await chat('ada')).text())
          .split('\n\n')
          .filter((event) => event !== '')
          .map((event) => JSON.parse(event.replace('data: ', '')) as { text?: string; outcome?: string });
        expect(events.map(({ text = '' }) => text).join(''), `round ${round}`).toBe('Good morning.');
        expect(events.at(-1)).toEqual({ outcome: 'completed' });
      }
      const { items } = await servers.agents.current.client.sessions.listMessages({
        sessionId: 'customer-ada',
      });
      expect(items.map(({ role }) => role)).toEqual(['user', 'assistant', 'user', 'assistant']);
    } finally {
      child.kill('SIGTERM');
      await exit;
    }
  });
});
