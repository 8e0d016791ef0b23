// The file of the agent's first token while several replicas start.
import { existsSync, readFileSync } from 'node:fs';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { readTokenFile, writeTokenFile } from '../../../src/agent/tokens/token-file.ts';
import { nextTurn } from '../../../src/kernel/async.ts';
import { createToken } from '../../../src/kernel/secrets/secret.ts';
import { silentLog } from '../../support/databases.ts';

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'townhall-token-'));
});
afterEach(() => rm(folder, { recursive: true, force: true }));

describe('writeTokenFile', () => {
  test('shows no reader an unfinished file', async () => {
    for (let round = 0; round < 20; round += 1) {
      const path = join(folder, `token-${round}`);
      const token = createToken('agt');
      const texts = new Set<string>();
      let isWritten = false;
      const writing = writeTokenFile(path, token, { replace: false }).finally(() => (isWritten = true));
      while (!isWritten) {
        if (existsSync(path)) texts.add(readFileSync(path, 'utf8'));
        await nextTurn();
      }
      await writing;
      // A replica that starts meanwhile would refuse an empty file as that of another program.
      expect([...texts].filter((text) => text !== `${token}\n`)).toEqual([]);
      expect(await readTokenFile(path, silentLog)).toBe(token);
    }
  });

  test('keeps an existing file and leaves no other one behind', async () => {
    const path = join(folder, 'token');
    const [firstToken, secondToken] = [createToken('agt'), createToken('agt')];
    await writeTokenFile(path, firstToken, { replace: false });
    await expect(writeTokenFile(path, secondToken, { replace: false })).rejects.toMatchObject({
      code: 'EEXIST',
    });
    expect(await readTokenFile(path, silentLog)).toBe(firstToken);
    await writeTokenFile(path, secondToken, { replace: true });
    expect(await readTokenFile(path, silentLog)).toBe(secondToken);
    expect(await readdir(folder)).toEqual(['token']);
  });
});
