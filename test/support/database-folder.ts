// Folder of the test databases: in memory if there is room, since a commit waits for the disk;
// otherwise the folder of temporary files.
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
