// `townhall models update` and the commands around it: signatures, the shown changes, refusals,
// pins, the rollback, and the limits of a download.
import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { createServer, type RequestListener, type Server } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { catalogSource, maximumDocumentBytes } from '../../src/cli/models/source.ts';
import { curatedModels, writeCatalogFile, type CatalogDocument } from '../../src/gateway/ai/index.ts';
import { listen } from '../support/local-server.ts';
import { runInProcess, type CommandResult } from './in-process.ts';

const modelId = 'openai/gpt-4.1';
const builtIn = curatedModels().models.find(({ id }) => id === modelId);
const inputRate = builtIn?.rates?.input ?? 0;

let folder: string;
let env: Record<string, string>;
let servers: Server[];
beforeEach(async () => {
  servers = [];
  folder = await mkdtemp(join(tmpdir(), 'townhall-update-'));
  env = { MODELS_CATALOG_FILE: join(folder, 'catalog.json') };
  env['MODELS_CATALOG_KEYS'] = (await run('keygen', join(folder, 'key.pem'))).output[0] ?? '';
});
afterEach(async () => {
  for (const server of servers) server.close().closeAllConnections();
  await rm(folder, { recursive: true, force: true });
});

const run = (...words: string[]): Promise<CommandResult> => runInProcess(['models', ...words], env);
const readApplied = async (): Promise<CatalogDocument> =>
  JSON.parse(await readFile(join(folder, 'catalog.json'), 'utf8')) as CatalogDocument;
const appliedModel = async (id = modelId) => (await readApplied()).models?.find((model) => model.id === id);

/** A document in which the model has another price for its input. */
function documentWith(input: number, overrides: Partial<CatalogDocument> = {}): CatalogDocument {
  if (builtIn === undefined) throw new Error(`There is no ${modelId}.`);
  const model = { ...builtIn, rates: { ...builtIn.rates, input } };
  return { published_at: '2026-11-23T00:00:00Z', models: [model], ...overrides };
}

async function publish(document: CatalogDocument, { isSigned = true } = {}): Promise<string> {
  const file = join(folder, 'published.json');
  await writeFile(file, JSON.stringify(document));
  await rm(`${file}.sig`, { force: true });
  if (isSigned) await run('sign', file, '--key-file', join(folder, 'key.pem'));
  return file;
}

async function update(document: CatalogDocument, ...words: string[]): Promise<CommandResult> {
  return run('update', '--from', await publish(document), '--yes', ...words);
}

async function serve(listener: RequestListener): Promise<string> {
  const server = createServer(listener);
  servers.push(server);
  return `${(await listen(server)).url}/catalog.json`;
}

describe('townhall models update', () => {
  test('shows the changes and applies a signed catalog', async () => {
    const { code, output } = await update(documentWith(inputRate * 2));
    expect(code).toBe(0);
    expect(output).toEqual([
      `~ model ${modelId}`,
      `    rates.input: ${inputRate} -> ${inputRate * 2} (x2)`,
      'Models: 0 new, 1 changed, 0 removed. Providers: 0 changed.',
      `Applied: ${join(folder, 'catalog.json')}`,
    ]);
    expect((await appliedModel())?.rates?.input).toBe(inputRate * 2);
  });

  test('shows the address, key and price of new entries', async () => {
    const provider = {
      id: 'acme',
      kind: 'openai-compatible',
      base_url: 'https://acme.example/v1',
      keys: [{ env: 'ACME_KEY' }],
    };
    const model = { id: 'acme/fast', provider: 'acme', rates: { input: 7 } };
    const file = await publish({ providers: [provider], models: [model] } as CatalogDocument);
    const { output } = await run('update', '--from', file, '--dry-run');
    expect(output).toEqual(
      expect.arrayContaining([
        '    base_url: none -> "https://acme.example/v1"',
        '    keys: none -> [{"env":"ACME_KEY"}]',
        '    upstream_model: none -> "fast"',
        '    rates.input: none -> 7',
      ]),
    );
  });

  test('writes nothing with --dry-run', async () => {
    const { code, output } = await update(documentWith(inputRate * 2), '--dry-run');
    expect([code, output.at(-1)]).toEqual([0, 'Nothing was changed.']);
    await expect(stat(join(folder, 'catalog.json'))).rejects.toThrow('ENOENT');
  });

  test('accepts the same catalog from an address on this machine', async () => {
    const file = await publish(documentWith(inputRate * 2));
    const files: Record<string, Buffer> = {
      '/catalog.json': await readFile(file),
      '/catalog.json.sig': await readFile(`${file}.sig`),
    };
    const url = await serve((request, response) => response.end(files[request.url ?? '']));
    expect((await run('update', '--from', url, '--yes')).code).toBe(0);
    expect((await appliedModel())?.rates?.input).toBe(inputRate * 2);
  });

  test('refuses a catalog that was changed after it was signed', async () => {
    const file = await publish(documentWith(inputRate * 2));
    await writeFile(file, (await readFile(file, 'utf8')).replace(String(inputRate * 2), String(inputRate)));
    await expect(run('update', '--from', file, '--yes')).rejects.toThrow(
      'The signature is not by one of the public keys',
    );
  });

  test('refuses a signature by another key', async () => {
    const file = await publish(documentWith(inputRate * 2));
    const { output } = await run('keygen', join(folder, 'other.pem'));
    await expect(
      run('update', '--from', file, '--models-catalog-keys', output[0] ?? '', '--yes'),
    ).rejects.toThrow('The signature is not by one of the public keys');
  });

  test('needs a signature unless --unsigned is set', async () => {
    const file = await publish(documentWith(inputRate * 2), { isSigned: false });
    await expect(run('update', '--from', file, '--yes')).rejects.toThrow('published.json.sig');
    expect((await run('update', '--from', file, '--unsigned', '--yes')).code).toBe(0);
  });

  test('needs a signature for a download', async () => {
    await expect(run('update', '--from', 'https://x.example/c', '--unsigned')).rejects.toThrow(
      '--unsigned is for files',
    );
  });

  test('refuses to run without a public key', async () => {
    delete env['MODELS_CATALOG_KEYS'];
    await expect(run('update', '--from', join(folder, 'a.json'))).rejects.toThrow('There is no public key');
  });

  test.each([
    ['a price above the factor', { input: inputRate * 4, output: 1 }],
    ['a price of zero', { input: 0, output: 1 }],
    ['a missing price', { output: 1 }],
    ['no price at all', null],
  ])('refuses %s unless the model is allowed to jump', async (_name, rates) => {
    const document = documentWith(inputRate);
    const next = { ...document, models: document.models?.map((model) => ({ ...model, rates })) };
    const { code, output } = await update(next as CatalogDocument);
    expect(code).toBe(1);
    expect(output.join('\n')).toContain(`--allow-jump ${modelId} applies it.`);
    await expect(stat(join(folder, 'catalog.json'))).rejects.toThrow('ENOENT');
    expect((await update(next as CatalogDocument, '--allow-jump', modelId)).code).toBe(0);
  });

  test.each([
    ['a new model that is free', { upstream_model: 'gpt-9', rates: null }],
    ['another name that makes a model cheap', { rates: { input: 1, output: 1 } }],
  ])('refuses %s', async (_name, members) => {
    const model = { ...documentWith(inputRate).models?.[0], id: 'openai/other', ...members };
    const { code, output } = await update({ models: [model] } as CatalogDocument);
    expect([code, output.join('\n')]).toEqual([1, expect.stringContaining('--allow-jump openai/other')]);
  });

  test.each([
    ['address', { base_url: 'https://elsewhere.example/v1' }],
    ['endpoints', { endpoints: [{ base_url: 'https://elsewhere.example/v1' }] }],
    ['keys', { api_key_env: undefined, keys: [{ env: 'OPENAI_API_KEY' }] }],
    ['limit of the output', { output_limit_member: 'max_output' }],
  ])('refuses another %s of a provider unless providers are allowed', async (_name, members) => {
    const provider = curatedModels().providers.find(({ id }) => id === 'mistral');
    const next = { providers: [{ ...provider, ...members }] } as CatalogDocument;
    const { code, output } = await update(next);
    expect([code, output.join('\n')]).toEqual([
      1,
      expect.stringContaining('The provider mistral is new, or'),
    ]);
    expect((await update(next, '--allow-providers')).code).toBe(0);
  });

  test('refuses an older catalog than the applied one', async () => {
    await update(documentWith(inputRate * 2));
    const olderDocument = documentWith(inputRate, { published_at: '2026-11-22T00:00:00Z' });
    const { code, output } = await update(olderDocument);
    expect([code, output.join('\n')]).toEqual([1, expect.stringContaining('--allow-older applies it.')]);
    expect((await appliedModel())?.rates?.input).toBe(inputRate * 2);
  });

  test('refuses a time of publication that does not exist', async () => {
    const document = documentWith(inputRate, { published_at: '2026-13-01T00:00:00Z' });
    const file = await publish(document, { isSigned: false });
    await expect(run('update', '--from', file, '--unsigned', '--yes')).rejects.toThrow(
      'published_at: there is no such time as 2026-13-01T00:00:00Z',
    );
  });

  test('keeps the change of another command that ran meanwhile', async () => {
    await update(documentWith(inputRate * 2));
    const write = { next: {}, current: {}, keepsFormer: true, check: async () => {} };
    await expect(writeCatalogFile(join(folder, 'catalog.json'), write)).rejects.toThrow(
      'was changed by another command meanwhile',
    );
    expect((await appliedModel())?.rates?.input).toBe(inputRate * 2);
  });

  test('refuses a catalog with which the MODELS_FILE is invalid', async () => {
    const extraModel = { ...documentWith(inputRate).models?.[0], id: 'openai/extra', provider: 'openai' };
    await update({ models: [extraModel] } as CatalogDocument);
    const ownEntry = { id: 'openai/own', provider: 'openai', rates: null, fallbacks: ['openai/extra'] };
    await writeFile(join(folder, 'models.json'), JSON.stringify({ models: [ownEntry] }));
    env['MODELS_FILE'] = join(folder, 'models.json');
    await expect(update({ models: [] })).rejects.toThrow(
      'there is no other model "openai/extra" Nothing was changed.',
    );
    expect((await appliedModel('openai/extra'))?.id).toBe('openai/extra');
  });

  test('names the path of an invalid value and changes nothing', async () => {
    const file = await publish({ models: [{ id: 'x' }] } as unknown as CatalogDocument, { isSigned: false });
    await expect(run('update', '--from', file, '--unsigned', '--yes')).rejects.toThrow('models[0]');
    await expect(stat(join(folder, 'catalog.json'))).rejects.toThrow('ENOENT');
  });
});

describe('townhall models pin', () => {
  test('keeps a whole model as it is', async () => {
    await run('pin', modelId);
    const next = documentWith(inputRate * 2);
    const { output } = await update({
      ...next,
      models: next.models?.map((model) => ({ ...model, name: 'New' })) ?? [],
    });
    expect(output).toContain(`= model ${modelId} is pinned and stays.`);
    expect(await appliedModel()).toMatchObject({ name: builtIn?.name, rates: { input: inputRate } });
  });

  test('keeps only the price with --price', async () => {
    await run('pin', modelId, '--price');
    const next = documentWith(inputRate * 2);
    await update({ ...next, models: next.models?.map((model) => ({ ...model, name: 'New' })) ?? [] });
    expect(await appliedModel()).toMatchObject({ name: 'New', rates: { input: inputRate } });
  });

  test('ends with unpin', async () => {
    await run('pin', modelId);
    await run('unpin', modelId);
    await update(documentWith(inputRate * 2));
    expect(await appliedModel()).toMatchObject({ rates: { input: inputRate * 2 } });
  });

  test('refuses a model that the catalog does not have', async () => {
    await expect(run('pin', 'nobody/none')).rejects.toThrow('The catalog has no model nobody/none');
  });
});

describe('townhall models rollback', () => {
  test('switches between the last two catalogs', async () => {
    await update(documentWith(inputRate * 2));
    expect((await run('rollback', '--yes')).code).toBe(0);
    expect(await appliedModel()).toBeUndefined();
    await run('rollback', '--yes');
    expect((await appliedModel())?.rates?.input).toBe(inputRate * 2);
  });

  test('skips an update without changes', async () => {
    await update(documentWith(inputRate * 2));
    expect((await update(documentWith(inputRate * 2))).output[0]).toBe('No changes.');
    await run('rollback', '--yes');
    expect(await appliedModel()).toBeUndefined();
  });

  test('leaves a pinned model as it is', async () => {
    await update(documentWith(inputRate * 2));
    await run('pin', modelId);
    await run('rollback', '--yes');
    expect((await appliedModel())?.rates?.input).toBe(inputRate * 2);
  });

  test('reports that there is no update to undo', async () => {
    await expect(run('rollback', '--yes')).rejects.toThrow('nothing has been updated yet');
  });
});

describe('the commands of a publisher', () => {
  test('writes a private key that only its owner can read', async () => {
    expect((await stat(join(folder, 'key.pem'))).mode & 0o777).toBe(0o600);
  });

  test('writes no private key over a file', async () => {
    await expect(run('keygen', join(folder, 'key.pem'))).rejects.toThrow('EEXIST');
  });

  test('exports a document that applies without changes', async () => {
    const file = join(folder, 'exported.json');
    await writeFile(file, (await run('export')).output.join('\n'));
    await run('sign', file, '--key-file', join(folder, 'key.pem'));
    const { code, output } = await run('update', '--from', file, '--yes');
    expect([code, output[0]]).toEqual([0, 'No changes.']);
  });

  test('signs only with an Ed25519 key', async () => {
    const file = await publish(documentWith(inputRate));
    await writeFile(join(folder, 'no.pem'), 'CANARY-91c2');
    const error = await run('sign', file, '--key-file', join(folder, 'no.pem')).catch(String);
    expect(error).toContain('has no Ed25519 private key');
    expect(error).not.toContain('CANARY');
  });
});

describe('a download of a catalog', () => {
  test.each(['http://models.example/c.json', 'ftp://models.example/c.json', 'http://10.0.0.1/c.json'])(
    'refuses the address %s',
    (url) => {
      expect(() => catalogSource(url)).toThrow('https://, or with http:// on this machine');
    },
  );

  test('does not follow a redirect', async () => {
    const url = await serve((_request, response) => response.writeHead(302, { location: '/other' }).end());
    await expect(catalogSource(url).readDocument()).rejects.toThrow('set the final address');
  });

  test('stops at its size limit', async () => {
    const part = Buffer.alloc(64 * 1024, ' ');
    const url = await serve((_request, response) => {
      response.on('error', () => {});
      const write = (): void => {
        while (!response.destroyed && response.write(part));
      };
      response.on('drain', write);
      write();
    });
    await expect(catalogSource(url).readDocument()).rejects.toThrow(
      `more than ${maximumDocumentBytes} bytes`,
    );
  });

  test('stops at its deadline while the body arrives', async () => {
    const url = await serve((_request, response) => void response.write('{'));
    await expect(catalogSource(url, { timeoutMs: 50 }).readDocument()).rejects.toThrow(
      'did not answer completely within 0.05 s',
    );
  });
});
