// The journal after kill -9 of its writer, with many lines, and on a full disk.
import { type ChildProcessByStdio, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { Readable } from 'node:stream';
import { describe, expect, onTestFinished, test } from 'vitest';
import { finalLine, openJournalWorld, readCharges } from './world.ts';

const program = join(import.meta.dirname, 'writer-process.ts');

type Writer = ChildProcessByStdio<null, Readable, null>;

function startWriter(path: string, args: readonly string[], nodeOptions: readonly string[] = []): Writer {
  const child = spawn(process.execPath, [...nodeOptions, program, path, ...args], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  onTestFinished(() => void child.kill('SIGKILL'));
  return child;
}

async function readLines({ stdout }: Writer): Promise<string[]> {
  const lines: string[] = [];
  for await (const line of createInterface(stdout)) lines.push(line);
  return lines;
}

describe('kill -9 of the writer', () => {
  test('leaves every synced line once', async () => {
    const world = await openJournalWorld();
    const child = startWriter(world.path, ['write']);
    const syncedIds: string[] = [];
    for await (const line of createInterface(child.stdout)) {
      syncedIds.push(line);
      if (syncedIds.length === 2_000) child.kill('SIGKILL');
    }
    const journal = await world.take();
    const usageIds = (await readCharges(journal)).map(({ usageId }) => usageId);
    expect(new Set(usageIds).size).toBe(usageIds.length);
    expect(syncedIds.filter((usageId) => !usageIds.includes(usageId))).toEqual([]);
    expect(world.alarms).toEqual([]);
  });

  test('unlocks the folder', async () => {
    const world = await openJournalWorld();
    const child = startWriter(world.path, ['write']);
    await once(createInterface(child.stdout), 'line');
    expect(await world.directory().takeAbandoned()).toEqual([]);
    child.kill('SIGKILL');
    await once(child, 'exit');
    await world.take();
  });
});

test('the journal replays 100,000 lines in 64 MB of heap', async () => {
  const world = await openJournalWorld();
  await once(startWriter(world.path, ['fill', '100000']), 'exit');
  const replay = startWriter(world.path, ['replay'], ['--max-old-space-size=64']);
  expect(await readLines(replay)).toEqual(['100000']);
});

const canMount = process.platform === 'linux' && process.getuid?.() === 0;

test.runIf(canMount)('the journal survives a full disk', async () => {
  const world = await openJournalWorld();
  const path = join(world.path, 'small');
  await mkdir(path);
  execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=1m', 'tmpfs', path]);
  onTestFinished(() => void execFileSync('umount', ['-l', path]));
  const journal = await world.open({ path, segmentBytes: 256 * 1024 });
  let syncedCount = 0;
  const failure = await (async () => {
    for (;;) {
      const seq = journal.append(finalLine(`use_${syncedCount + 1}`));
      await journal.sync(seq);
      syncedCount = seq;
    }
  })().catch((error: unknown) => error);
  expect(failure).toMatchObject({ status: 503 });
  expect(journal.health).toBe('failed');
  expect(await readCharges(journal)).toHaveLength(syncedCount);
  await rm(join(path, journal.journalId, '0000000000000001.segment'));
  world.clock.advance(5_000);
  await expect.poll(() => journal.health).toBe('ok');
  await journal.sync(journal.append(finalLine('after')));
  await journal.close();
});
