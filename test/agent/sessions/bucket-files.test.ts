// Attachments in a bucket that refuses to delete.
import { describe, expect, test } from 'vitest';
import { bucketAttachments } from '../../../src/agent/sessions/attachments/bucket-files.ts';
import { decodeAttachments } from '../../../src/agent/sessions/attachments/files.ts';
import type { S3Storage } from '../../../src/kernel/storage/s3-storage.ts';

describe('bucketAttachments', () => {
  const storage = { removeAll: () => Promise.reject(new Error('AccessDenied')) } as unknown as S3Storage;
  const input = { fileName: 'a.txt', contentType: 'text/plain', content: 'a' };

  // An error would replace the answer to the input.
  test('discards without an error when the bucket refuses', async () => {
    const discard = bucketAttachments(storage).discard('session', decodeAttachments([input]));
    await expect(discard).resolves.toBeUndefined();
  });
});
