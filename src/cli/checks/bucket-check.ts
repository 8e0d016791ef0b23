// Whether a bucket can be read, for `townhall doctor`.
import { systemClock } from '../../kernel/clock.ts';
import { errorText } from '../../kernel/error-text.ts';
import type { S3Options } from '../../kernel/storage/s3-client.ts';
import { requireBucket } from '../../kernel/storage/s3-settings.ts';
import { fail, ok, type Finding } from './finding.ts';

export async function checkBucket(name: string, prefix: '' | 'AGENT_', options: S3Options): Promise<Finding> {
  const { bucket, endpoint } = options;
  try {
    await requireBucket(prefix, { ...options, clock: systemClock });
    return ok(name, `${endpoint} shows the bucket ${bucket}.`);
  } catch (error) {
    return fail(
      name,
      errorText(error),
      `The settings begin with ${prefix}STORAGE_S3_; see the guide on storage in S3.`,
    );
  }
}
