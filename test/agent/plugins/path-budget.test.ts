// Replaces paths by their folders if a sandbox would have too many paths to mount.
import { describe, expect, test } from 'vitest';
import { coverPaths } from '../../../src/agent/plugins/builtin/workspace/path-budget.ts';

const root = '/w';
const makePaths = (folder: string, count: number) =>
  Array.from({ length: count }, (_, index) => `${root}/${folder}/${index}/package.json`);

describe('coverPaths', () => {
  test('keeps paths that are few enough', () => {
    const paths = makePaths('a', 3);
    expect(coverPaths(paths, { root, max: 3 })).toEqual({ paths, folders: [] });
  });

  test('covers the smallest folder that is enough', () => {
    const paths = [
      ...makePaths('packages', 50),
      ...makePaths('test/fixtures', 30),
      ...makePaths('test/cases', 20),
    ];
    const { paths: coveredPaths = [], folders } = coverPaths(paths, { root, max: 75 }) ?? {};
    expect(folders).toEqual(['/w/test/fixtures']);
    // One folder replaces 30 of the 100 paths.
    expect(coveredPaths).toHaveLength(71);
    expect(coveredPaths).toContain('/w/packages/49/package.json');
  });

  test('covers several folders if no single folder is enough', () => {
    const paths = [...makePaths('a', 50), ...makePaths('b', 40), ...makePaths('c', 30), '/w/package.json'];
    const { paths: coveredPaths = [], folders } = coverPaths(paths, { root, max: 40 }) ?? {};
    expect(folders).toEqual(['/w/a', '/w/b']);
    // Two folders, the 30 paths in `c`, and the file in the root.
    expect(coveredPaths).toHaveLength(33);
  });

  test('covers every path', () => {
    const paths = [
      ...makePaths('a/b/c', 40),
      ...makePaths('a/b', 40),
      ...makePaths('a/x', 40),
      ...makePaths('d', 9),
    ];
    for (const max of [20, 40, 60, 80, 100, 120]) {
      const { paths: coveredPaths = [] } = coverPaths(paths, { root, max }) ?? {};
      expect(coveredPaths.length).toBeLessThanOrEqual(max);
      for (const path of paths)
        expect(coveredPaths.some((entry) => entry === path || path.startsWith(`${entry}/`))).toBe(true);
    }
  });

  test('gives up if the root itself has too many entries', () => {
    const paths = Array.from({ length: 11 }, (_, index) => `${root}/${index}`);
    expect(coverPaths(paths, { root, max: 10 })).toBeUndefined();
  });

  // CPU time, so that other work on the machine does not count.
  test('takes less than five seconds of CPU for 100,000 paths', () => {
    const paths = Array.from({ length: 100_000 }, (_, index) => `${root}/${index % 900}/a/b/${index}/c`);
    const usageBefore = process.cpuUsage();
    expect(coverPaths(paths, { root, max: 1_000 })?.paths).toHaveLength(900);
    expect(process.cpuUsage(usageBefore).user / 1_000_000).toBeLessThan(5);
  });
});
