import { execFileSync } from 'node:child_process';
import { setFlagsFromString } from 'node:v8';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { saveMemoryWhileIdle } from '../../../src/cli/servers/heap.ts';

const nodeMajor = Number(process.versions.node.split('.')[0]);

describe.skipIf(nodeMajor < 24)('saveMemoryWhileIdle', () => {
  beforeEach(() => void vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] }));
  afterEach(() => void vi.useRealTimers());

  test('saves memory in idle seconds alone', () => {
    const seconds = [0.9, 0.5, 0.04, 0, 0.06, 0.8, 0.01];
    const flags: string[] = [];
    saveMemoryWhileIdle({ utilization: () => seconds.shift() ?? 0, setFlag: (flag) => flags.push(flag) });
    expect(flags).toEqual([]);
    vi.advanceTimersByTime(2_000);
    expect(flags).toEqual([]);
    vi.advanceTimersByTime(2_000);
    expect(flags).toEqual(['--memory-saver-mode']);
    vi.advanceTimersByTime(2_000);
    expect(flags).toEqual(['--memory-saver-mode', '--no-memory-saver-mode']);
    vi.advanceTimersByTime(60_000);
    expect(flags).toEqual(['--memory-saver-mode', '--no-memory-saver-mode', '--memory-saver-mode']);
  });

  test('sets flags that this Node knows', () => {
    // V8 prints an error for an unknown flag and goes on, so its list is asked.
    const v8Options = execFileSync(process.execPath, ['--v8-options'], { encoding: 'utf8' });
    expect(v8Options).toContain('--memory-saver-mode');
    expect(() => setFlagsFromString('--no-memory-saver-mode')).not.toThrow();
  });
});
