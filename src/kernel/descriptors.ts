// Checks whether this process can still open files and sockets. At the limit of file descriptors
// Node drops new connections without an error visible here, while open connections keep working.
import { open, type FileHandle } from 'node:fs/promises';
import { devNull } from 'node:os';
import { Problem } from './problem.ts';

// A request needs a descriptor for its connection, one for the model provider, and some for the database.
const spareDescriptors = 8;

/**
 * Opens some descriptors and closes them again. Throws 503 `not_ready` when the process or the
 * system has none left.
 */
export async function requireDescriptors(count: number = spareDescriptors): Promise<void> {
  const results = await Promise.allSettled(Array.from({ length: count }, () => open(devNull, 'r')));
  const handles = results.filter(
    (result): result is PromiseFulfilledResult<FileHandle> => result.status === 'fulfilled',
  );
  await Promise.all(handles.map(({ value }) => value.close()));
  const failure = results.find((result) => result.status === 'rejected');
  if (failure === undefined) return;
  throw new Problem('unavailable', 'not_ready', 'The server has no file descriptors left.', {
    cause: failure.reason,
    headers: { 'retry-after': '1' },
  });
}
