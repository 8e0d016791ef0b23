// Paths in rendered files when the platform separates names by backslashes.
import { expect, test, vi } from 'vitest';
import { dockerfilePath, type RenderOptions } from '../../src/deploy/render-options.ts';

vi.mock('node:path', async (importOriginal) => {
  const path = await importOriginal<{ win32: object }>();
  return { ...path.win32, default: path.win32 };
});

test('a rendered path has slashes', () => {
  const options = { directory: 'C:\\city', folder: 'C:\\city\\ops\\deploy' } as RenderOptions;
  expect(dockerfilePath(options)).toBe('ops/deploy/Dockerfile');
  expect(dockerfilePath({ ...options, folder: options.directory })).toBe('Dockerfile');
});
