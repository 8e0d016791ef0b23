// The models that users and administrators see, from the models file, the catalog file and the
// curated models.
import { writeFileSync } from 'node:fs';
import { mkdtemp, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { openCatalog, type Catalog } from '../../../../src/gateway/ai/catalog/catalog.ts';
import { curatedModels } from '../../../../src/gateway/ai/catalog/curated.ts';
import {
  createModelsFileReader,
  withDefaults,
  type ModelsFileInput,
} from '../../../../src/gateway/ai/catalog/models-file.ts';
import { priceLines } from '../../../../src/gateway/ai/catalog/rates.ts';
import { silentLog } from '../../../support/databases.ts';
import { adminToken, errorOf, startAi, type World, type WorldOptions } from '../world.ts';

const example = {
  providers: [
    {
      id: 'acme',
      name: 'Acme',
      kind: 'openai-compatible',
      base_url: 'https://models.example.com/v1/',
      api_key_env: 'ACME_API_KEY',
      usage: 'ask',
      output_limit_member: 'max_tokens',
      unpriced_members: ['service_tier'],
    },
    { id: 'home', kind: 'openai-compatible', base_url: 'http://127.0.0.1:9/v1' },
  ],
  models: [
    {
      id: 'acme/fast',
      name: 'Acme Fast',
      description: '',
      provider: 'acme',
      upstream_model: 'fast-1',
      modalities: ['text', 'stream', 'openai'],
      tags: ['quick'],
      context_window: 128000,
      max_output_tokens: 8192,
      inputs: ['text', 'image'],
      idle_timeout_s: 60,
      rates: {
        input: 150000,
        cached_input: 15000,
        cache_write: 187500,
        cache_write_1h: 300000,
        output: 600000,
        reasoning: 600000,
        image: 40000,
        video_second: 100000,
        video_second_1080: 250000,
        speech_character: 15,
        audio_second: 100,
      },
      tiers: [{ above_input_tokens: 200000, rates: { input: 300000, output: 900000 } }],
      reasoning: {
        efforts: [
          { id: 'low', name: 'Low' },
          { id: 'high', name: 'High' },
        ],
        default_effort: 'low',
      },
      fallbacks: ['acme/slow'],
    },
    { id: 'acme/slow', provider: 'acme', rates: { input: 150, output: 1 }, modalities: ['text'] },
    { id: 'home/free', provider: 'home', rates: null },
    { id: 'paid/echo', provider: 'local', upstream_model: 'echo', rates: { input: 1000, output: 2000 } },
  ],
};

type Item = Record<string, unknown> & { id: string };
// Local models have tests of their own.
async function listModels(world: World, options: { token?: string } = {}): Promise<Item[]> {
  const { items } = (await (await world.get('/v1/ai/models', options)).json()) as { items: Item[] };
  return items.filter(({ id }) => !id.startsWith('local/'));
}
const listIds = async (world: World) => (await listModels(world)).map(({ id }) => id);

async function withWorld(options: WorldOptions, use: (world: World) => Promise<void>): Promise<void> {
  const world = await startAi(options);
  try {
    await use(world);
  } finally {
    await world.close();
  }
}

describe('ai.listModels', () => {
  let world: World;
  beforeAll(async () => {
    world = await startAi({ models: JSON.stringify(example), env: {} });
  });
  afterAll(() => world.close());

  beforeEach(() => world.env.delete('ACME_API_KEY'));

  test('shows a user the models whose keys are set', async () => {
    expect(await listIds(world)).toEqual(['home/free', 'paid/echo']);
    world.env.set('ACME_API_KEY', 'k');
    expect(await listIds(world)).toEqual(['acme/fast', 'acme/slow', 'home/free', 'paid/echo']);
  });

  test('shows a user the efforts and no env_requirements', async () => {
    world.env.set('ACME_API_KEY', 'k');
    const models = await listModels(world);
    expect(models.find((item) => item.id === 'acme/fast')?.reasoning).toEqual(example.models[0]?.reasoning);
    expect(models.find((item) => item.id === 'acme/slow')).not.toHaveProperty('reasoning');
    expect(models.every((item) => !('env_requirements' in item))).toBe(true);
  });

  test('shows an administrator every model with its env_requirements', async () => {
    const models = await listModels(world, { token: adminToken });
    expect(models.map((item) => item.id)).toEqual(['acme/fast', 'acme/slow', 'home/free', 'paid/echo']);
    expect(models.every((item) => !('reasoning' in item))).toBe(true);
    expect(models.find((item) => item.id === 'acme/fast')?.env_requirements).toEqual([
      { key: 'ACME_API_KEY', description: 'Key of the model provider Acme.', required: true },
    ]);
    expect(models.find((item) => item.id === 'home/free')?.env_requirements).toEqual([]);
  });

  test('lists the price in readable lines', async () => {
    const models = await listModels(world, { token: adminToken });
    expect(models.find((item) => item.id === 'acme/fast')?.price).toEqual([
      '150 credits per 1K input tokens',
      '15 credits per 1K cached input tokens',
      '187.5 credits per 1K input tokens written to the cache',
      '300 credits per 1K input tokens written to the cache for an hour',
      '600 credits per 1K output tokens',
      '600 credits per 1K reasoning tokens',
      '40000 credits per image',
      '100000 credits per second of video',
      '250000 credits per second of video of 1080 lines or more',
      '15 credits per character of speech',
      '100 credits per second of audio',
      '300 credits per 1K input tokens in calls above 200000 input tokens',
      '900 credits per 1K output tokens in calls above 200000 input tokens',
    ]);
    expect(models.find((item) => item.id === 'acme/slow')?.price).toEqual([
      '0.15 credits per 1K input tokens',
      '0.001 credits per 1K output tokens',
    ]);
    expect(models.find((item) => item.id === 'home/free')?.price).toEqual(['free']);
  });

  test("serves OpenAI's client with the same answer", async () => {
    const modelIds: string[] = [];
    for await (const model of world.openai().models.list()) modelIds.push(model.id);
    expect(modelIds).toEqual(expect.arrayContaining(['local/echo', 'home/free', 'paid/echo']));
    expect(await world.openai().models.retrieve('local/echo')).toMatchObject({
      id: 'local/echo',
      object: 'model',
      owned_by: 'local',
    });
  });

  test('refuses a guest', async () => {
    expect((await world.get('/v1/ai/models', { token: null })).status).toBe(401);
  });
});

describe('ai.getModel', () => {
  let world: World;
  beforeAll(async () => {
    world = await startAi({ models: JSON.stringify(example), env: {} });
  });
  afterAll(() => world.close());

  test('reads one model with a plain or an encoded slash', async () => {
    for (const path of ['/v1/ai/models/local/echo', '/v1/ai/models/local%2Fecho']) {
      const response = await world.get(path);
      expect(response.status).toBe(200);
      expect(await response.json()).toMatchObject({ id: 'local/echo', reasoning: { default_effort: 'low' } });
    }
  });

  test('hides a model without its key from a user like an unknown model', async () => {
    const hiddenModel = await world.get('/v1/ai/models/acme/fast');
    const absentModel = await world.get('/v1/ai/models/acme/none');
    expect([hiddenModel.status, absentModel.status]).toEqual([404, 404]);
    expect((await errorOf(hiddenModel)).message).toBe(
      String((await errorOf(absentModel)).message).replace('acme/none', 'acme/fast'),
    );
  });

  test('shows a model without its key to an administrator', async () => {
    expect(await (await world.get('/v1/ai/models/acme/fast', { token: adminToken })).json()).toMatchObject({
      id: 'acme/fast',
      env_requirements: [{ key: 'ACME_API_KEY' }],
    });
  });

  test('names the missing key to an administrator', async () => {
    const error = await errorOf(
      await world.post('/v1/ai/text', { model: 'acme/fast', prompt: 'x' }, { token: adminToken }),
    );
    expect(error).toMatchObject({
      code: 'model_not_found',
      message: expect.stringContaining('ACME_API_KEY'),
    });
  });
});

describe('MODELS_FILE', () => {
  const changeExample = (change: (file: typeof example) => void) => {
    const file = structuredClone(example);
    change(file);
    return JSON.stringify(file);
  };
  const set = (target: object, name: string, value: unknown) => Object.assign(target, { [name]: value });

  test.each<[string, string, string]>([
    ['not JSON', '{"providers": [', 'is not valid JSON'],
    [
      'a fractional rate',
      changeExample((file) => set(file.models[0]?.rates ?? {}, 'input', 0.5)),
      'models[0].rates.input: must be integer',
    ],
    [
      'a rate below zero',
      changeExample((file) => set(file.models[1]?.rates ?? {}, 'output', -1)),
      'models[1].rates.output: must be >= 0',
    ],
    [
      'an unknown rate',
      changeExample((file) => set(file.models[1]?.rates ?? {}, 'per_call', 1)),
      'models[1].rates.per_call: is not known here',
    ],
    [
      'a model without rates',
      changeExample((file) => delete (file.models[2] as Partial<Record<string, unknown>>).rates),
      'models[2].rates: is required',
    ],
    [
      'a misspelled member',
      changeExample((file) => set(file.models[0] ?? {}, 'upstream', 'x')),
      'models[0].upstream: is not known here',
    ],
    [
      'an unknown kind',
      changeExample((file) => set(file.providers[0] ?? {}, 'kind', 'telepathy')),
      'providers[0].kind: must match',
    ],
    [
      'a provider without an address',
      changeExample((file) => delete (file.providers[1] as Partial<Record<string, unknown>>).base_url),
      'providers[1].base_url: is required',
    ],
    [
      'an address with credentials',
      changeExample((file) => set(file.providers[1] ?? {}, 'base_url', 'https://me:secret@example.com/v1')),
      'providers[1].base_url: must be an http or https address',
    ],
    [
      'a provider twice',
      changeExample((file) => set(file.providers[1] ?? {}, 'id', 'acme')),
      'providers[1].id: "acme" is declared twice',
    ],
    [
      'a provider that is built in',
      changeExample((file) => set(file.providers[1] ?? {}, 'id', 'local')),
      'providers[1].id: "local" is built in',
    ],
    [
      'a model twice',
      changeExample((file) => set(file.models[3] ?? {}, 'id', 'acme/fast')),
      'models[3].id: "acme/fast" is declared twice',
    ],
    [
      'an unknown provider',
      changeExample((file) => set(file.models[1] ?? {}, 'provider', 'nobody')),
      'models[1].provider: there is no provider "nobody"',
    ],
    [
      'a default effort that is not among the efforts',
      changeExample((file) => set(file.models[0]?.reasoning ?? {}, 'default_effort', 'huge')),
      'models[0].reasoning.default_effort: must be one of low, high',
    ],
    [
      'an unknown fallback',
      changeExample((file) => set(file.models[0] ?? {}, 'fallbacks', ['acme/gone'])),
      'models[0].fallbacks[0]: there is no other model "acme/gone"',
    ],
    [
      'a model that is its own fallback',
      changeExample((file) => set(file.models[0] ?? {}, 'fallbacks', ['acme/fast'])),
      'models[0].fallbacks[0]: there is no other model',
    ],
    [
      'a local model that does not exist',
      changeExample((file) => set(file.models[3] ?? {}, 'upstream_model', 'oracle')),
      'models[3].upstream_model: must be one of echo, guide',
    ],
  ])('is rejected at startup for %s', async (_name, models, message) => {
    await expect(startAi({ models })).rejects.toThrow(message);
  });

  const aws = { type: 'aws', access_key_id_env: 'AWS_ID', secret_access_key_env: 'AWS_SECRET' } as const;
  const google = { type: 'service_account', key_env: 'KEY_FILE' } as const;
  const entra = { type: 'entra_id', tenant_id: 't', client_id: 'c', client_secret_env: 'SECRET' } as const;
  test.each([
    ['bedrock', { credentials: aws }, 'region: is required for the kind bedrock'],
    ['bedrock', { region: 'us-east-1' }, 'credentials: or api_key_env is required'],
    [
      'bedrock',
      { region: 'us-east-1', credentials: google },
      'credentials.type: must be aws for the kind bedrock',
    ],
    ['bedrock', { region: 'us-east-1', credentials: { ...aws, secret: 'x' } }, 'credentials.secret: '],
    [
      'bedrock',
      { region: 'us-east-1', credentials: { type: 'aws' } },
      'credentials.access_key_id_env: is required',
    ],
    [
      'bedrock',
      { region: 'us-east-1', credentials: aws, api_key_env: 'KEY' },
      'api_key_env: cannot be combined with',
    ],
    [
      'bedrock',
      { region: 'us-east-1', credentials: aws, keys: [{ env: 'KEY' }] },
      'keys: cannot be combined with credentials',
    ],
    [
      'azure',
      { credentials: entra, endpoints: [{ base_url: 'https://a.example', api_key_env: 'KEY' }] },
      'endpoints[0].api_key_env: cannot be combined with credentials',
    ],
    [
      'azure',
      {
        endpoints: [{ base_url: 'https://a.example', api_key_env: 'KEY' }, { base_url: 'https://b.example' }],
      },
      'endpoints[1].api_key_env: is required without keys of the provider',
    ],
    [
      'bedrock',
      { region: 'us-east-1', credentials: aws, endpoints: [{ base_url: 'https://a.example' }] },
      'endpoints: cannot be combined with credentials for the kind bedrock, whose calls contain the region',
    ],
    [
      'vertex',
      {
        project: 'p',
        location: 'eu',
        credentials: google,
        endpoints: [{ base_url: 'https://a.example' }],
      },
      'endpoints: cannot be combined with credentials for the kind vertex, whose calls contain the location',
    ],
    [
      'vertex',
      { project: 'p', location: 'eu', credentials: google, keys: [{ env: 'KEY' }] },
      'keys: does not apply to the kind vertex',
    ],
    ['bedrock', { region: 'evil.example/', credentials: aws }, 'region: must match'],
    [
      'bedrock',
      { region: 'us-east-1', credentials: aws, formats: ['chat'] },
      'formats: does not apply to the kind',
    ],
    ['azure', { api_key_env: 'KEY' }, 'resource: is required for the kind azure without a base_url'],
    [
      'azure',
      {
        resource: 'acme',
        credentials: {
          type: 'entra_id',
          tenant_id: 't',
          client_id: 'c',
          client_secret_env: 'SECRET',
          token_url: 'https://me:secret@example.com/',
        },
      },
      'credentials.token_url: must be an http or https address',
    ],
    ['vertex', { project: 'p', credentials: google }, 'location: is required for the kind vertex'],
    [
      'vertex',
      { project: 'p', location: 'eu', api_key_env: 'KEY' },
      'api_key_env: does not apply to the kind vertex',
    ],
    ['vertex-anthropic', { project: 'p', location: 'eu' }, 'credentials: is required'],
    ['openai', { credentials: aws }, 'credentials: does not apply to the kind openai; set api_key_env'],
    ['openai', { credentials: {} }, 'credentials.type: is required'],
    ['openai', { credentials: { type: 'password' } }, 'credentials.type: must be equal to one of'],
  ])('refuses members that do not fit the kind: %s %j', async (kind, members, message) => {
    const models = JSON.stringify({ providers: [{ id: 'cloud', kind, ...members }] });
    await expect(startAi({ models })).rejects.toThrow(`providers[0].${message}`);
  });

  test.each([
    [{ kind: 'azure', resource: 'acme', api_key_env: 'KEY' }, 'https://acme.openai.azure.com/openai/v1'],
    [
      { kind: 'azure', base_url: 'https://models.acme.example/openai/v1/', api_key_env: 'KEY' },
      'https://models.acme.example/openai/v1',
    ],
    [
      { kind: 'bedrock', region: 'eu-central-1', credentials: aws },
      'https://bedrock-runtime.eu-central-1.amazonaws.com',
    ],
    [
      { kind: 'bedrock', region: 'cn-north-1', credentials: aws },
      'https://bedrock-runtime.cn-north-1.amazonaws.com.cn',
    ],
    [
      { kind: 'vertex', project: 'p', location: 'europe-west1', credentials: google },
      'https://europe-west1-aiplatform.googleapis.com',
    ],
    [
      { kind: 'vertex', project: 'p', location: 'global', credentials: google },
      'https://aiplatform.googleapis.com',
    ],
    [
      { kind: 'vertex-anthropic', project: 'p', location: 'eu', credentials: google },
      'https://aiplatform.eu.rep.googleapis.com',
    ],
  ] as const)('derives the address of a provider: %j', (provider, baseUrl) => {
    const input = { providers: [{ id: 'cloud', ...provider }] };
    expect(withDefaults(input).providers[0]?.base_url).toBe(baseUrl);
  });

  test('lists a model when all variables of its credentials are set', async () => {
    const cloud = {
      providers: [
        {
          id: 'cloud',
          kind: 'bedrock',
          region: 'us-east-1',
          credentials: { ...aws, session_token_env: 'AWS_TOKEN' },
        },
      ],
      models: [{ id: 'cloud/nova', provider: 'cloud', rates: null }],
    };
    const env = { AWS_ID: 'a', AWS_SECRET: 'b' };
    await withWorld({ models: JSON.stringify(cloud), env }, async (world) => {
      expect(await listIds(world)).toEqual([]);
      const [model] = await listModels(world, { token: adminToken });
      expect(model?.['env_requirements']).toMatchObject([
        { key: 'AWS_ID' },
        { key: 'AWS_SECRET' },
        { key: 'AWS_TOKEN' },
      ]);
      world.env.set('AWS_TOKEN', 'c');
      expect(await listIds(world)).toEqual(['cloud/nova']);
    });
  });

  const fileWithModel = (id: string) =>
    JSON.stringify({
      providers: [{ id: 'home', kind: 'openai-compatible', base_url: 'http://127.0.0.1:9/v1' }],
      models: [{ id, provider: 'home', rates: null }],
    });

  test('is read again after each change', async () => {
    await withWorld({ models: JSON.stringify(example), env: {} }, async (world) => {
      await writeFile(world.modelsFile, fileWithModel('home/new'));
      await expect.poll(() => listIds(world)).toEqual(['home/new']);
      // Rename over the old file, as editors and deployments do.
      await writeFile(`${world.modelsFile}.next`, fileWithModel('home/newest'));
      await rename(`${world.modelsFile}.next`, world.modelsFile);
      await expect.poll(() => listIds(world)).toEqual(['home/newest']);
    });
  });

  test('keeps its models when a change is invalid', async () => {
    await withWorld({ models: fileWithModel('home/new'), env: {} }, async (world) => {
      await writeFile(world.modelsFile, '{"models":[{"id":"x"}]}');
      await expect
        .poll(() => world.logged.filter((line) => line.includes('a models file is invalid')).join())
        .toContain('models[0].provider');
      expect(await listIds(world)).toEqual(['home/new']);
    });
  });

  test('is rejected at startup when the file is missing', async () => {
    const emptyFile = { providers: [], models: [] };
    await expect(
      openCatalog({
        env: new Map(),
        builtin: emptyFile,
        curated: emptyFile,
        modelsFile: '/nonexistent/models.json',
        log: silentLog,
      }),
    ).rejects.toThrow('there is no such file');
  });

  test('takes effect when it changes while the catalog opens', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'townhall-catalog-'));
    const modelsFile = join(folder, 'models.json');
    await writeFile(modelsFile, fileWithModel('home/old'));
    // Read when the file has been read and before it is watched.
    const builtin = {
      providers: [],
      get models() {
        writeFileSync(modelsFile, fileWithModel('home/new'));
        return [];
      },
    };
    const curated = { providers: [], models: [] };
    const catalog = await openCatalog({ env: new Map(), builtin, curated, modelsFile, log: silentLog });
    try {
      expect(catalog.all().map(({ id }) => id)).toEqual(['home/new']);
    } finally {
      catalog.close();
      await rm(folder, { recursive: true });
    }
  });

  test('may price a local model', async () => {
    await withWorld({ models: JSON.stringify(example), env: {} }, async (world) => {
      const response = await world.post('/v1/ai/text', { model: 'paid/echo', prompt: 'x' });
      // Less than a credit, rounded up.
      expect(await response.json()).toMatchObject({
        metadata: { model: 'paid/echo', credits: 1 },
        parts: [{ text: 'x' }],
      });
    });
  });
});

describe('the catalog file', () => {
  const modelOfPrice = (input: number) => ({ id: 'acme/a', provider: 'acme', rates: { input, output: 1 } });
  const acme = { id: 'acme', kind: 'openai-compatible', base_url: 'http://127.0.0.1:9/v1' };
  let folder: string;
  let catalogFile: string;
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'townhall-catalog-'));
    catalogFile = join(folder, 'catalog.json');
  });
  afterEach(() => rm(folder, { recursive: true, force: true }));

  async function openWithFiles(modelsFile?: string) {
    const curated = withDefaults({ providers: [acme], models: [modelOfPrice(1)] } as ModelsFileInput);
    return openCatalog({
      env: new Map(),
      builtin: { providers: [], models: [] },
      curated,
      catalogFile,
      modelsFile,
      log: silentLog,
    });
  }
  const inputRate = (catalog: Catalog) => catalog.get({ kind: 'admin' }, 'acme/a').price[0];

  test('replaces a curated model as soon as it exists', async () => {
    const catalog = await openWithFiles();
    try {
      expect(inputRate(catalog)).toBe('0.001 credits per 1K input tokens');
      await writeFile(catalogFile, JSON.stringify({ models: [modelOfPrice(2)] }));
      await expect.poll(() => inputRate(catalog)).toBe('0.002 credits per 1K input tokens');
    } finally {
      catalog.close();
    }
  });

  test('is overridden by MODELS_FILE', async () => {
    await writeFile(catalogFile, JSON.stringify({ models: [modelOfPrice(2)] }));
    const modelsFile = join(folder, 'models.json');
    await writeFile(modelsFile, JSON.stringify({ models: [modelOfPrice(3)] }));
    const catalog = await openWithFiles(modelsFile);
    try {
      expect(inputRate(catalog)).toBe('0.003 credits per 1K input tokens');
    } finally {
      catalog.close();
    }
  });

  test('is rejected at startup when it is invalid', async () => {
    await writeFile(catalogFile, JSON.stringify({ models: [{ ...modelOfPrice(2), provider: 'nobody' }] }));
    await expect(openWithFiles()).rejects.toThrow(
      `MODELS_CATALOG_FILE ${catalogFile}: models[0].provider: there is no provider "nobody"`,
    );
  });
});

describe('the curated models', () => {
  const catalogJson = new URL('../../../../src/gateway/ai/catalog/catalog.json', import.meta.url).pathname;

  test('are a valid MODELS_FILE', async () => {
    const parser = await createModelsFileReader()(catalogJson);
    expect(parser.parse({ providers: [], models: [], localModels: [] })).toEqual(curatedModels());
  });

  test('have the source and date of each price', () => {
    for (const model of curatedModels().models)
      expect(model.meta).toMatchObject({
        price_source: expect.stringMatching(/^https:/),
        price_date: expect.stringMatching(/^\d{4}-\d\d-\d\d$/),
      });
  });

  test('match what the script generates from the packages of that date', async () => {
    const { curatedCatalog } = await import('../../../../scripts/catalog.ts');
    const catalog = JSON.parse(await readFile(catalogJson, 'utf8')) as {
      models: { meta: { price_date: string } }[];
    };
    expect(curatedCatalog(catalog.models[0]?.meta.price_date ?? '')).toEqual(catalog);
  });

  test('apply an announced price increase at once', () => {
    // The package lists 0.75 dollars until 2026-12-31 and 1.5 from then on.
    const model = curatedModels().models.find(({ id }) => id === 'google/gemini-3.8-flash');
    expect(model?.rates).toMatchObject({ input: 1_500_000, output: 7_500_000 });
  });

  test('have the price of long calls as a tier', () => {
    const model = curatedModels().models.find(({ id }) => id === 'anthropic/claude-haiku-5-5');
    expect(model?.tiers).toEqual([
      { above_input_tokens: 100_000, rates: expect.objectContaining({ input: 500_000, output: 2_500_000 }) },
    ]);
  });

  test('are listed once the key of their provider is set', async () => {
    await withWorld({ curated: curatedModels(), env: {} }, async (world) => {
      expect(await listIds(world)).toEqual([]);
      const models = await listModels(world, { token: adminToken });
      expect(new Set(models.map((item) => item.owned_by))).toEqual(
        new Set(['openai', 'anthropic', 'google', 'deepseek', 'mistral', 'xai', 'groq']),
      );
      expect(models.length).toBeGreaterThan(40);
      world.env.set('ANTHROPIC_API_KEY', 'k');
      const userModels = await listModels(world);
      expect(new Set(userModels.map((item) => item.owned_by))).toEqual(new Set(['anthropic']));
      expect(userModels.find((item) => item.id === 'anthropic/claude-opus-5')).toMatchObject({
        price: expect.arrayContaining([
          '5000 credits per 1K input tokens',
          '25000 credits per 1K output tokens',
        ]),
        reasoning: { default_effort: 'high' },
      });
    });
  });

  test("are overridden by the operator's base URL and price", async () => {
    const models = JSON.stringify({
      providers: [{ id: 'openai', kind: 'openai-compatible', base_url: 'http://127.0.0.1:9/v1' }],
      models: [
        {
          id: 'openai/gpt-5.1',
          provider: 'openai',
          rates: { input: 1000, output: 2000 },
          fallbacks: ['anthropic/claude-opus-5'],
        },
      ],
    });
    await withWorld({ curated: curatedModels(), models, env: {} }, async (world) => {
      const model = (await listModels(world)).find((item) => item.id === 'openai/gpt-5.1');
      expect(model).toMatchObject({
        price: ['1 credit per 1K input tokens', '2 credits per 1K output tokens'],
      });
    });
  });
});

describe('priceLines', () => {
  test('keeps every digit of a rate', () => {
    expect(priceLines({ input: 1, reasoning: 9007199254740991 }, [])).toEqual([
      '0.001 credits per 1K input tokens',
      '9007199254740.991 credits per 1K reasoning tokens',
    ]);
  });

  test('writes one credit in the singular', () => {
    expect(priceLines({ output: 1000, image: 1 }, [])).toEqual([
      '1 credit per 1K output tokens',
      '1 credit per image',
    ]);
  });

  test('lists a rate of zero', () => {
    expect(priceLines({ input: 0 }, [])).toEqual(['0 credits per 1K input tokens']);
  });
});
