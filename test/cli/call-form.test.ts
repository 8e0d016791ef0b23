// The requests of `townhall call` for operations that take a form.
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { readOperations } from '../../src/cli/call/operations.ts';
import { buildRequest } from '../../src/cli/call/request.ts';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'townhall-form-'));
  await writeFile(join(folder, 'one.wav'), 'RIFF one');
  await writeFile(join(folder, 'two.wav'), 'RIFF two');
});
afterAll(() => rm(folder, { recursive: true, force: true }));

async function requestOf(operationId: string, pairs: string[], body?: string): Promise<Request> {
  const operation = (await readOperations('gateway')).find((entry) => entry.operationId === operationId);
  if (operation === undefined) throw new Error(`There is no operation ${operationId}.`);
  const env = { TOWNHALL_TOKEN: 'a token', TOWNHALL_CONFIG_DIR: folder, HOME: folder };
  const options = { surface: 'gateway' as const, body, url: 'http://127.0.0.1:1', tokenFile: undefined, env };
  return (await buildRequest(operation, pairs, options)).request;
}

describe('a form', () => {
  test('has the members as text and the file with its name', async () => {
    const file = join(folder, 'one.wav');
    const form = await (
      await requestOf('ai.transcribeClientAudio', ['model=a/b', 'temperature=0', `file=@${file}`])
    ).formData();
    expect([form.get('model'), form.get('temperature')]).toEqual(['a/b', '0']);
    const upload = form.get('file') as File;
    expect([upload.name, await upload.text()]).toEqual(['one.wav', 'RIFF one']);
  });

  test('has several files of a list', async () => {
    const files = ['one.wav', 'two.wav'].map((name) => `image[]=@${join(folder, name)}`);
    const request = await requestOf('ai.generateClientImageEdits', ['model=a/b', 'prompt=x', ...files]);
    const uploads = (await request.formData()).getAll('image[]') as File[];
    expect(uploads.map(({ name }) => name)).toEqual(['one.wav', 'two.wav']);
  });

  test('without files is URL-encoded where the contract says so', async () => {
    const request = await requestOf('accounts.decideLogin', ['confirmation=a b', 'decision=confirm']);
    expect(request.headers.get('content-type')).toBe('application/x-www-form-urlencoded');
    expect(await request.text()).toBe('confirmation=a+b&decision=confirm');
  });

  test('names how to write a file', async () => {
    await expect(requestOf('ai.transcribeClientAudio', ['file=one.wav'])).rejects.toThrow(
      'file takes a file: file=@FILE.',
    );
  });

  test('names the file that cannot be read', async () => {
    await expect(requestOf('ai.transcribeClientAudio', ['file=@/missing.wav'])).rejects.toThrow(
      '/missing.wav',
    );
  });

  test('is not taken from --body', async () => {
    await expect(requestOf('ai.transcribeClientAudio', [], '{}')).rejects.toThrow('NAME=@FILE');
  });
});
