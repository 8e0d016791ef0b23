// Where the databases of tests are: in memory where the machine has room for them, since they end with their test and a
// commit waits for the disk. The folder of temporary files otherwise.
import { existsSync, statfsSync } from 'node:fs';
import { tmpdir } from 'node:os';

const memoryFolder = '/dev/shm';
// All workers together need a tenth of this.
const requiredBytes = 8 * 1024 ** 3;

export const databaseFolder = hasRoom(memoryFolder) ? memoryFolder : tmpdir();

function hasRoom(folder: string): boolean {
  if (!existsSync(folder)) return false;
  const { bavail, bsize } = statfsSync(folder);
  return bavail * bsize >= requiredBytes;
}
