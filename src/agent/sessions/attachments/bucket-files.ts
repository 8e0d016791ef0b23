// Attachments in a bucket. Their keys are the paths that they have on the disk, so an operator moves them by
// copying the folder.
import { buffer } from 'node:stream/consumers';
import type { S3Storage } from '../../../kernel/storage/s3-storage.ts';
import { folderName, type AttachmentFiles } from './files.ts';

export function bucketAttachments(storage: S3Storage): AttachmentFiles {
  const folderOf = (sessionKey: string) => `sessions/${folderName(sessionKey)}/`;
  return {
    async write(sessionKey, files) {
      for (const { storedName, bytes } of files) await storage.put(folderOf(sessionKey) + storedName, bytes);
    },
    async read(sessionKey, storedName) {
      const file = await storage.open(folderOf(sessionKey) + storedName);
      return file && buffer(file.content);
    },
    async discard(sessionKey, files) {
      const keys = files.map(({ storedName }) => folderOf(sessionKey) + storedName);
      // A failed deletion leaves unused objects in the bucket, but must not change the answer to the input.
      await storage.removeAll(keys).catch(() => {});
    },
    async removeAll(sessionKey) {
      for await (const page of storage.list(folderOf(sessionKey)))
        await storage.removeAll(page.map(({ key }) => key));
    },
  };
}
