// Videos of local/storyboard: their jobs, their MP4 boxes, and their frames as a browser shows them.
import type { AcceptedJob, VideoJob } from '@townhall/gateway';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Page } from 'playwright-core';
import { hasChromium, launchChromium } from '../../../support/chromium.ts';
import { download, waitForVideo, startMedia, videosOf, type MediaWorld } from './media-world.ts';

let world: MediaWorld;
let film: { job: VideoJob; url: string; bytes: Buffer };

beforeAll(async () => {
  world = await startMedia();
  const submission = (await world.user.ai.startVideo({
    model: 'local/storyboard',
    prompt: 'A red circle on blue. A yellow star at night.',
    size: '320x180',
    duration_seconds: 3,
    fps: 10,
    seed: 3,
  })) as AcceptedJob;
  const job = await waitForVideo(world.user, submission.job_id);
  const url = videosOf(job)[0]?.url ?? '';
  film = { job, url, bytes: (await download(url)).bytes };
}, 150_000);
afterAll(() => world?.close());

/** Plays the film in the page and counts the red and yellow pixels of an early and a late frame. */
function readFrames(page: Page, film: Buffer) {
  return page.evaluate(
    async (source) => {
      const video = document.createElement('video');
      video.muted = true;
      const waitForEvent = (name: string) =>
        new Promise((resolve, reject) => {
          video.addEventListener(name, resolve, { once: true });
          video.addEventListener('error', () => reject(new Error(video.error?.message ?? 'no video')), {
            once: true,
          });
        });
      const dataLoaded = waitForEvent('loadeddata');
      video.src = source;
      await dataLoaded;
      const canvas = document.createElement('canvas');
      canvas.width = video.videoWidth;
      canvas.height = video.videoHeight;
      const context = canvas.getContext('2d') as CanvasRenderingContext2D;

      /**
       * Draws the frame at this time. A seek may resolve before the frame is shown, so its time is checked.
       */
      async function drawFrame(seconds: number): Promise<void> {
        const seek = waitForEvent('seeked');
        video.currentTime = seconds;
        await seek;
        const deadline = performance.now() + 20_000;
        for (;;) {
          const frame = new VideoFrame(video);
          const frameSeconds = frame.timestamp / 1e6;
          context.drawImage(frame, 0, 0);
          frame.close();
          if (Math.abs(frameSeconds - seconds) <= 0.15) return;
          if (performance.now() > deadline)
            throw new Error(`The film is at ${frameSeconds} s and not at ${seconds} s.`);
          await new Promise((resolve) => setTimeout(resolve, 20));
        }
      }

      async function countColors(seconds: number): Promise<{ red: number; yellow: number }> {
        await drawFrame(seconds);
        const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
        const counts = { red: 0, yellow: 0 };
        for (let index = 0; index < data.length; index += 4) {
          const [r = 0, g = 0, b = 0] = data.slice(index, index + 3);
          if (r > 150 && g < 110 && b < 120) counts.red += 1;
          if (r > 170 && g > 140 && b < 130) counts.yellow += 1;
        }
        return counts;
      }

      return {
        width: video.videoWidth,
        height: video.videoHeight,
        duration: video.duration,
        early: await countColors(0.7),
        late: await countColors(2.4),
      };
    },
    `data:video/mp4;base64,${film.toString('base64')}`,
  );
}

describe('ai.startVideo', { timeout: 120_000 }, () => {
  it('renders H.264 video with the requested frames and duration', () => {
    expect(film.job).toMatchObject({
      status: 'succeeded',
      progress: 1,
      videos: [{ media_type: 'video/mp4', width: 320, height: 180, duration_seconds: 3 }],
    });
    const movie = readBoxes(film.bytes);
    expect(film.bytes.toString('latin1', 4, 8)).toBe('ftyp');
    const header = movie.get('moov/mvhd');
    expect((header?.readUInt32BE(16) ?? 0) / (header?.readUInt32BE(12) ?? 1)).toBeCloseTo(3, 1);
    const sizes = movie.get('moov/trak/mdia/minf/stbl/stsz');
    // 3 seconds at 10 frames a second.
    expect(sizes?.readUInt32BE(8)).toBe(30);
    const description = movie.get('moov/trak/mdia/minf/stbl/stsd');
    expect(description?.toString('latin1', 12, 16)).toBe('avc1');
    // Without an stss box every sample has to be a sync sample.
    expect(movie.has('moov/trak/mdia/minf/stbl/stss')).toBe(false);
    expect(countKeyframes(film.bytes, sizes)).toBe(30);
    // Width and height of the visual sample entry.
    expect([description?.readUInt16BE(40), description?.readUInt16BE(42)]).toEqual([320, 180]);
  });

  it.skipIf(!hasChromium)('renders two scenes that a browser plays', async () => {
    const browser = await launchChromium();
    try {
      const frames = await readFrames(await browser.newPage(), film.bytes);
      expect(frames).toMatchObject({ width: 320, height: 180 });
      expect(frames.duration).toBeCloseTo(3, 1);
      expect(frames.early.red).toBeGreaterThan(1_000);
      expect(frames.late.red).toBeLessThan(100);
      expect(frames.late.yellow).toBeGreaterThan(1_000);
      expect(frames.early.yellow).toBeLessThan(100);
    } finally {
      await browser.close();
    }
  });

  it('answers other requests while it renders', async () => {
    const { job_id } = (await world.user.ai.startVideo({
      model: 'local/storyboard',
      prompt: 'A long one. And more.',
      duration_seconds: 6,
    })) as AcceptedJob;
    let answers = 0;
    for (let status = 'queued'; status !== 'succeeded'; answers += 1) {
      const startMs = performance.now();
      status = ((await world.user.ai.startVideo({ job_id })) as VideoJob).status;
      expect(performance.now() - startMs).toBeLessThan(5_000);
      expect(['queued', 'running', 'succeeded']).toContain(status);
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    // Rendering takes seconds; a blocked event loop would have answered once or twice.
    expect(answers).toBeGreaterThan(5);
  });

  it('cancels a job', async () => {
    const { job_id } = (await world.user.ai.startVideo({
      model: 'local/storyboard',
      prompt: 'never seen',
      duration_seconds: 20,
      fps: 30,
    })) as AcceptedJob;
    expect(await world.user.ai.startVideo({ job_id, cancel: true })).toMatchObject({ status: 'canceled' });
    const canceledJob = (await world.user.ai.startVideo({ job_id })) as VideoJob;
    expect(canceledJob).toMatchObject({ status: 'canceled' });
    expect(canceledJob).not.toHaveProperty('videos');
  });

  it.each([
    ['neither a start nor a poll', {}, 400, 'invalid_request'],
    ['both at once', { model: 'local/storyboard', prompt: 'x', job_id: 'job_1' }, 400, 'invalid_request'],
    ['a poll with a prompt', { prompt: 'x', job_id: 'job_1' }, 400, 'invalid_request'],
    [
      'an odd width',
      { model: 'local/storyboard', prompt: 'x', size: '321x180' },
      422,
      'unsupported_by_model',
    ],
    [
      'a longer video than the model generates',
      { model: 'local/storyboard', prompt: 'x', duration_seconds: 21 },
      422,
      'unsupported_by_model',
    ],
    [
      'more frames a second than the model generates',
      { model: 'local/storyboard', prompt: 'x', fps: 60 },
      422,
      'unsupported_by_model',
    ],
    ['a model for images', { model: 'local/shapes', prompt: 'x' }, 422, 'unsupported_by_model'],
    ['an unknown job', { job_id: 'job_00000000000000000000000000' }, 404, 'job_not_found'],
  ])('refuses %s', async (_name, body, status, code) => {
    const response = await world.send('/v1/ai/video', body);
    expect(response.status).toBe(status);
    expect(await response.json()).toMatchObject({ error: { code } });
  });
});

/**
 * Counts samples that begin with a parameter set or an IDR picture; the samples lie one after the
 * other.
 */
function countKeyframes(file: Buffer, sizes: Buffer | undefined): number {
  let offset = file.indexOf('mdat') + 4;
  let count = 0;
  for (let index = 0; index < (sizes?.readUInt32BE(8) ?? 0); index += 1) {
    const kind = (file[offset + 4] ?? 0) & 0x1f;
    if (kind === 5 || kind === 7) count += 1;
    offset += sizes?.readUInt32BE(12 + index * 4) ?? 0;
  }
  return count;
}

const containers = new Set(['moov', 'trak', 'mdia', 'minf', 'stbl']);

/** The content of each box by its path. */
function readBoxes(file: Buffer, path = ''): Map<string, Buffer> {
  const contents = new Map<string, Buffer>();
  for (let offset = 0; offset + 8 <= file.length;) {
    const length = file.readUInt32BE(offset);
    const name = path + file.toString('latin1', offset + 4, offset + 8);
    if (length < 8 || offset + length > file.length) throw new Error(`the box ${name} is broken`);
    const content = file.subarray(offset + 8, offset + length);
    contents.set(name, content);
    if (containers.has(name.split('/').at(-1) ?? ''))
      for (const [innerName, body] of readBoxes(content, `${name}/`)) contents.set(innerName, body);
    offset += length;
  }
  return contents;
}
