// Races in the AI SDK's video calls that a client cannot cause reliably.
import { describe, expect, it } from 'vitest';
import { sdkVideoHandlers, type SdkVideoOptions } from '../../../../src/gateway/ai/handlers/sdk-videos.ts';
import { rememberNothing } from '../../../../src/kernel/data/idempotency.ts';
import { systemClock } from '../../../../src/kernel/clock.ts';

const jobId = 'job_01jd6zv0c5e9fsr8m2w4x1k7qa';
const model = { id: 'acme/film', provider: 'acme', rates: null, tiers: [] };
const runningJob = { jobId, kind: 'video', status: 'running', media: [], credits: null, error: null };
const film = { mediaId: 'med_01jd6zv0c5e9fsr8m2w4x1k7qa', mediaType: 'video/mp4' };
const identity = { kind: 'user', userId: 'usr_01jd6zv0c5e9fsr8m2w4x1k7qa', tokenId: 'tok_1', bureauId: null };

type VideoHandlers = ReturnType<typeof sdkVideoHandlers>;
type Input<Id extends keyof VideoHandlers> = Parameters<VideoHandlers[Id]>[0];

function createHandlers(jobs: object): VideoHandlers {
  const options = {
    catalog: { chain: () => [model] },
    billing: { requirePayer: () => {} },
    models: { checkVideo: () => {} },
    links: {},
    clock: systemClock,
    timeouts: { answerMs: 1_000, streamMs: 60_000 },
    jobs,
  };
  return sdkVideoHandlers(options as unknown as SdkVideoOptions);
}

describe('ai.generateSdkVideo', () => {
  it('cancels the job when the caller disconnects before the answer begins', async () => {
    const disconnection = new AbortController();
    const canceledIds: string[] = [];
    const generate = createHandlers({
      create: async () => {
        disconnection.abort(new Error('The caller has disconnected.'));
        return jobId;
      },
      find: async () => runningJob,
      cancel: async (address: { jobId: string }) => {
        canceledIds.push(address.jobId);
        return { ...runningJob, status: 'canceled' };
      },
    })['ai.generateSdkVideo'];
    const call = {
      identity,
      headers: { 'ai-model-id': model.id },
      body: { prompt: 'A boat' },
      signal: disconnection.signal,
      remember: rememberNothing,
    };
    const { events } = await generate(call as unknown as Input<'ai.generateSdkVideo'>);
    // The server discards the events of a closed connection without reading them.
    await events?.[Symbol.asyncIterator]().return?.();
    await expect.poll(() => canceledIds).toEqual([jobId]);
  });
});

describe('ai.getSdkVideo', () => {
  it('reports an error for a video that is deleted while it is read', async () => {
    const getVideo = createHandlers({
      find: async () => ({ ...runningJob, status: 'succeeded', media: [film], readAt: new Date() }),
      openMedia: async () => null,
    })['ai.getSdkVideo'];
    const call = { identity, body: { operation: { job_id: jobId } } };
    const reply = await getVideo(call as unknown as Input<'ai.getSdkVideo'>);
    expect(reply).toEqual({ status: 200, body: { status: 'error', error: 'The video was deleted.' } });
  });
});
