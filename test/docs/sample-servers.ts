// The servers for the code samples of the contract: a gateway and an agent of each variant with
// everything that the examples name: a Bureau `shop`, models of `acme`, two payment providers, a
// mailbox, the services `notes` and `hello`.
import { randomUUID } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { definePlugin } from '../../src/agent/plugins/index.ts';
import { defineService } from '../../src/index.ts';
import { startMailbox, type Mailbox } from '../gateway/accounts/mailbox.ts';
import { startAgent, type TestAgent } from '../support/agent.ts';
import { startCreem } from '../support/creem.ts';
import { startGateway, testAdministrator, type GatewayWorld } from '../support/gateway.ts';
import { startProvider, type ScriptedProvider } from '../support/provider.ts';
import {
  calls,
  says,
  scriptedGateway,
  type ScriptedAnswer,
  type StreamRequest,
} from '../support/scripted-gateway.ts';
import { startStripe, type StripeDouble } from '../support/stripe.ts';

export interface SampleServers {
  gateway: GatewayWorld;
  agents: { current: TestAgent; classic: TestAgent };
  provider: ScriptedProvider;
  mailbox: Mailbox;
  stripe: StripeDouble;
  close(): Promise<void>;
}

export const administratorPassword = testAdministrator.password;

const anyObject = { type: 'object' };
const notes = defineService({
  id: 'notes',
  name: 'Notes',
  actions: {
    add: { method: 'POST', identities: [], input: anyObject, run: () => ({ added: true }) },
    list: { method: 'GET', identities: [], run: () => [] },
    'add/start': { method: 'POST', identities: [], input: anyObject, run: () => ({ started: true }) },
    'list/newest': { method: 'GET', identities: [], run: () => [] },
  },
});

const hello = defineService({
  id: 'hello',
  name: 'Hello',
  actions: { world: { method: 'GET', identities: [], run: () => ({ hello: 'world' }) } },
});

const carefulPlugin = definePlugin<{ act: object }>({
  name: 'careful',
  title: 'Careful',
  description: 'Asks before it acts.',
  actions: { act: { description: 'Acts.', input: anyObject, needsApproval: true, run: async () => 'done' } },
  services: [
    {
      name: 'bell',
      title: 'Bell',
      start: async () => {},
      stop: async () => {},
      actions: { ring: { description: 'Rings.', input: anyObject, run: async () => 'ding' } },
    },
    {
      name: 'web',
      title: 'Web',
      start: async () => {},
      stop: async () => {},
      commands: { output: { description: 'What it printed.', input: anyObject, run: async () => 'ready' } },
    },
  ],
});

export async function startSampleServers(): Promise<SampleServers> {
  const [provider, mailbox, stripe, creem, model] = await Promise.all([
    startProvider(),
    startMailbox(),
    startStripe(),
    startCreem(),
    scriptedGateway(),
  ]);
  const folder = await mkdtemp(join(tmpdir(), 'townhall-samples-'));
  const modelsFile = join(folder, 'models.json');
  await writeFile(modelsFile, modelsOf(provider));
  const gateway = await startGateway({
    withAdmin: true,
    services: [notes, hello],
    env: {
      ...stripe.env,
      ...creem.env,
      LOG_LEVEL: 'error',
      MODELS_FILE: modelsFile,
      ACME_API_KEY: 'a key for tests',
      SMTP_URL: mailbox.url,
      MAIL_FROM: 'Shop <login@shop.example>',
      CREDITS_PER_UNIT: '1000000',
      STARTING_CREDITS: '1000000000',
    },
  });
  await gateway.admin.bureaus.createBureau({ bureau_id: 'shop', server_url: 'https://shop.example' });
  model.answer(answerPrompt);
  const agentOptions = {
    gatewayUrl: model.url,
    model: 'local/echo',
    createOptions: { plugins: [carefulPlugin] },
  };
  const agents = {
    current: await startAgent({ ...agentOptions, settings: { drainMs: 0 } }),
    classic: await startAgent({ ...agentOptions, settings: { drainMs: 0 }, variant: 'classic' }),
  };
  return {
    gateway,
    agents,
    provider,
    mailbox,
    stripe,
    async close() {
      await Promise.all([agents.current.close(), agents.classic.close(), gateway.close()]);
      await Promise.all([provider, mailbox, stripe, creem, model].map((server) => server.close()));
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** Chooses the model's answer to an agent by the text of the last message. */
function answerPrompt({ prompt }: StreamRequest): ScriptedAnswer {
  const lastMessage = JSON.stringify(prompt.filter(({ role }) => role !== 'system').at(-1));
  if (lastMessage.includes('Act now')) return calls({ name: 'careful_act', input: {} });
  if (lastMessage.includes('Write a file'))
    return calls({ name: 'files_write', input: { path: `${randomUUID()}.txt`, content: 'Hall' } });
  if (lastMessage.includes('Take long'))
    return { respond: (response) => new Promise((resolve) => response.once('close', () => resolve())) };
  return says('Good morning.');
}

/** A models file with the models that the examples name. */
function modelsOf(provider: ScriptedProvider): string {
  const providerEntry = { base_url: provider.url, api_key_env: 'ACME_API_KEY' };
  const rates = { input: 1, output: 1 };
  return JSON.stringify({
    providers: [
      {
        id: 'acme',
        kind: 'openai-compatible',
        formats: ['chat', 'embeddings', 'responses', 'rerank', 'moderations'],
        ...providerEntry,
      },
      { id: 'openai', kind: 'openai-compatible', formats: ['chat', 'responses'], ...providerEntry },
      { id: 'anthropic', kind: 'anthropic', ...providerEntry },
    ],
    models: [
      { id: 'acme/fast', provider: 'acme', upstream_model: 'ok', rates },
      { id: 'acme/vectors', provider: 'acme', upstream_model: 'ok', rates, modalities: ['embedding'] },
      { id: 'acme/guard', provider: 'acme', upstream_model: 'ok', rates, modalities: ['moderation'] },
      { id: 'acme/order', provider: 'acme', upstream_model: 'ok', rates, modalities: ['text'] },
      { id: 'acme/painter', provider: 'acme', upstream_model: 'images', rates: null, modalities: ['image'] },
      { id: 'acme/listener', provider: 'acme', upstream_model: 'whisper', rates: null, modalities: ['asr'] },
      { id: 'openai/gpt-5.1', provider: 'openai', upstream_model: 'ok', rates, max_output_tokens: 500 },
      {
        id: 'anthropic/claude-haiku-4-5',
        provider: 'anthropic',
        upstream_model: 'ok',
        rates,
        max_output_tokens: 500,
      },
    ],
  });
}
