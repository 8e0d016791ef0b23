// The rehearsal of a new version, which must not touch the data that the running version holds.
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, onTestFinished, test } from 'vitest';
import { cityFolder } from '../../src/deploy/index.ts';
import { createGeneration } from '../../src/deploy/supervisor/generation.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { openListeningSocket } from '../../src/kernel/http/listening-socket.ts';
import { silentLog } from '../support/template.ts';

const version = '0.1.0';

/**
 * A gateway that writes its environment to `seen.json`, reports itself healthy and ready, and exits when it
 * is asked to leave.
 */
const recordingGateway = `
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
writeFileSync('seen.json', JSON.stringify(process.env));
const server = createServer((_request, response) => response.end('{"ok":true}'));
process.on('message', ({ kind, id, input }) => {
  const reply = () => process.send({ id, ok: true }, () => kind === 'leave' && process.exit(0));
  if (kind === 'start') server.listen(input.socket, reply);
  else reply();
});
`;

let directory: string;
beforeEach(async () => {
  // A short path, because the path of a socket is limited to about 100 bytes.
  directory = await mkdtemp(join(tmpdir(), 'th-trial-'));
});
afterEach(() => rm(directory, { recursive: true, force: true }));

/**
 * A generation whose gateway is the program, and the City's folder. The gateway may take ten minutes to start,
 * which is longer than a test.
 */
async function createTrial(program: string) {
  const folder = cityFolder(directory);
  await mkdir(folder.versionPath(version), { recursive: true });
  await writeFile(join(directory, 'gateway.mjs'), program);
  const socket = openListeningSocket('127.0.0.1', 0);
  onTestFinished(() => socket.close());
  const generation = createGeneration(
    {
      version,
      runner: { command: process.execPath, arguments: [join(directory, 'gateway.mjs')] },
      env: {
        DATABASE_PATH: folder.dataPath('demo-db'),
        STORAGE_PATH: folder.mediaPath,
        JOURNAL_PATH: folder.journalPath,
      },
    },
    { folder, socket, number: 1, clock: systemClock, log: silentLog, write: () => {}, startMs: 600_000 },
  );
  return { folder, generation };
}

test('a rehearsal keeps its database, media and journal in the trial folder', async () => {
  const { folder, generation } = await createTrial(recordingGateway);
  await generation.rehearse();
  const environment = JSON.parse(
    await readFile(join(folder.versionPath(version), 'seen.json'), 'utf8'),
  ) as Record<string, string>;
  const { DATABASE_PATH, STORAGE_PATH, JOURNAL_PATH } = environment;
  expect([DATABASE_PATH, STORAGE_PATH, JOURNAL_PATH]).toEqual([
    folder.trialPath,
    join(folder.trialPath, 'media'),
    join(folder.trialPath, 'journal'),
  ]);
});

test('a rehearsal ends when its generation leaves', async () => {
  // A gateway that never answers the request to start.
  const { folder, generation } = await createTrial(
    `import { writeFileSync } from 'node:fs';
    process.on('message', () => writeFileSync('started', String(process.pid)));`,
  );
  const rehearsal = generation.rehearse();
  const startedFile = join(folder.versionPath(version), 'started');
  await expect.poll(() => readFile(startedFile, 'utf8').catch(() => '')).not.toBe('');
  await generation.leave({ lingerMs: 0 });
  await expect(rehearsal).rejects.toThrow('The version 0.1.0 was stopped.');
  const pid = Number(await readFile(startedFile, 'utf8'));
  expect(() => process.kill(pid, 0)).toThrow('ESRCH');
});
