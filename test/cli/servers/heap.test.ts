// The flags of V8 that a server sets while it is idle and while it is busy.
import { execFileSync } from 'node:child_process';
import { setFlagsFromString } from 'node:v8';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { saveMemoryWhileIdle } from '../../../src/cli/servers/heap.ts';

const nodeMajor = Number(process.versions.node.split('.')[0]);

describe.skipIf(nodeMajor < 24)('saveMemoryWhileIdle', () => {
  let youngBytes: number;
  beforeEach(() => {
    vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
    youngBytes = 1024 * 1024;
  });
  afterEach(() => void vi.useRealTimers());

  const checksPerSecond = 5;
  const noGrowthFlag = '--semi-space-growth-factor=1';
  const growthFlag = '--semi-space-growth-factor=2';
  const idleFlags = [noGrowthFlag, '--memory-saver-mode'];
  const busyFlags = [growthFlag, '--no-memory-saver-mode'];

  /** Starts with these utilizations, one for each second, and 0 afterwards; returns the flags that are set. */
  function startWith(seconds: number[], options: { growsWhileBusy?: boolean } = {}): string[] {
    const flags: string[] = [];
    let checks = 0;
    saveMemoryWhileIdle({
      ...options,
      utilization: () => seconds[Math.floor(checks++ / checksPerSecond)] ?? 0,
      youngBytes: () => youngBytes,
      setFlag: (flag) => flags.push(flag),
    });
    return flags;
  }

  test('saves memory only in idle seconds', () => {
    const flags = startWith([0.9, 0.5, 0.04, 0, 0.06, 0.8, 0.01]);
    vi.advanceTimersByTime(2_000);
    expect(flags).toEqual(busyFlags);
    vi.advanceTimersByTime(2_000);
    expect(flags).toEqual([...busyFlags, ...idleFlags]);
    vi.advanceTimersByTime(2_000);
    expect(flags).toEqual([...busyFlags, ...idleFlags, ...busyFlags]);
    vi.advanceTimersByTime(60_000);
    expect(flags).toEqual([...busyFlags, ...idleFlags, ...busyFlags, ...idleFlags]);
  });

  test('stops the growth of a young generation of 16 MiB', () => {
    const flags = startWith(Array.from({ length: 10 }, () => 0.9));
    vi.advanceTimersByTime(1_500);
    expect(flags).toEqual(busyFlags);
    youngBytes = 16 * 1024 * 1024;
    vi.advanceTimersByTime(5_000);
    expect(flags).toEqual([...busyFlags, noGrowthFlag]);
  });

  test('lets a young generation that has shrunk grow again', () => {
    const flags = startWith(Array.from({ length: 10 }, () => 0.9));
    youngBytes = 16 * 1024 * 1024;
    vi.advanceTimersByTime(1_500);
    expect(flags).toEqual(['--no-memory-saver-mode']);
    youngBytes = 1024 * 1024;
    vi.advanceTimersByTime(1_000);
    expect(flags).toEqual(['--no-memory-saver-mode', growthFlag]);
  });

  test('leaves the young generation of an agent small', () => {
    const flags = startWith([0.9, 0], { growsWhileBusy: false });
    vi.advanceTimersByTime(2_000);
    expect(flags).toEqual(['--no-memory-saver-mode', '--memory-saver-mode']);
  });

  test('sets the flags of a busy server within its first 200 ms', () => {
    const flags = startWith([0.9]);
    vi.advanceTimersByTime(200);
    expect(flags).toEqual(busyFlags);
  });

  test('sets no flag before an idle second is over', () => {
    const flags = startWith([0]);
    vi.advanceTimersByTime(900);
    expect(flags).toEqual([]);
  });

  test('sets flags that this version of Node knows', () => {
    // V8 prints an error for an unknown flag and goes on, so compare with its list of flags.
    const v8Options = execFileSync(process.execPath, ['--v8-options'], { encoding: 'utf8' });
    expect(v8Options).toContain('--memory-saver-mode');
    expect(v8Options).toContain('--semi-space-growth-factor');
    expect(() => setFlagsFromString('--no-memory-saver-mode')).not.toThrow();
  });
});
