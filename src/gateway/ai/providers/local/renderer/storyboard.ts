// A short film out of a prompt: each sentence is a scene, drawn as a picture is, over which the camera moves slowly,
// with the sentence below it. It runs in a thread; the encoder is one big synchronous program.
import type { createH264MP4Encoder } from 'h264-mp4-encoder';
import { createCanvas, paintRectangle, type Canvas } from './canvas.ts';
import { lineDots, paintLine, wrapLines } from './bitmap-font.ts';
import type { MediaFile, Size } from '../../../hub/media-model.ts';
import { paintScene } from './scene.ts';
import type { RenderTask } from './render-pool.ts';

const mostScenes = 8;
// How much larger a scene is than the frame: the room that the camera has.
const stage = 1.16;
const fadeSeconds = 0.4;

interface Shot {
  picture: Canvas;
  lines: string[];
  /** Where the camera goes, from -1 to 1 in both directions. */
  path: { x: number; y: number };
}

export async function renderStoryboard(
  { prompt, size, seed, durationSeconds, framesPerSecond }: Extract<RenderTask, { kind: 'storyboard' }>,
  report: (done: number) => void,
): Promise<MediaFile> {
  const scale = Math.max(Math.round(size.height / 180), 1);
  const shots = sentencesOf(prompt).map((sentence, index): Shot => ({
    picture: paintScene(
      sentence,
      { width: even(size.width * stage), height: even(size.height * stage) },
      `${seed}\n${index}`,
    ),
    lines: wrapLines(sentence, { maxDots: Math.floor((size.width * 0.88) / scale), maxLines: 2 }),
    path: { x: index % 2 === 0 ? 1 : -1, y: index % 3 === 0 ? 0.6 : -0.6 },
  }));
  const encoder = await openEncoder(size, framesPerSecond);
  const frames = Math.max(Math.round(durationSeconds * framesPerSecond), 1);
  const frame = createCanvas(size.width, size.height);
  for (let index = 0; index < frames; index += 1) {
    paintFrame(frame, shots, {
      at: index / frames,
      fade: Math.min((fadeSeconds * shots.length) / durationSeconds, 0.5),
      scale,
    });
    encoder.addFrameRgba(frame.rgba);
    if (index % framesPerSecond === 0) report(index / frames);
  }
  encoder.finalize();
  const content = encoder.FS.readFile(encoder.outputFilename, {});
  return {
    content: typeof content === 'string' ? Buffer.from(content) : new Uint8Array(content),
    mediaType: 'video/mp4',
    ...size,
    durationSeconds: frames / framesPerSecond,
  };
}

async function openEncoder(
  { width, height }: Size,
  framesPerSecond: number,
): Promise<Awaited<ReturnType<typeof createH264MP4Encoder>>> {
  // A bundle for CommonJS whose names an import does not see.
  const { default: library } = (await import('h264-mp4-encoder')) as unknown as {
    default: { createH264MP4Encoder: typeof createH264MP4Encoder };
  };
  const encoder = await library.createH264MP4Encoder();
  // Half-way between its fastest and its smallest. Each frame is a whole picture: the encoder does not write down which
  // are, so that players take all for one and would seek into the middle of a difference.
  Object.assign(encoder, {
    width,
    height,
    frameRate: framesPerSecond,
    quantizationParameter: 28,
    speed: 5,
    groupOfPictures: 1,
  });
  encoder.initialize();
  return encoder;
}

function sentencesOf(prompt: string): string[] {
  const sentences = prompt
    .split(/[.!?;\n。！？]+/)
    .map((sentence) => sentence.trim())
    .filter((sentence) => sentence !== '');
  if (sentences.length <= mostScenes) return sentences.length === 0 ? [prompt] : sentences;
  // Nothing is left out: what is too much for scenes of its own is in the last.
  return [...sentences.slice(0, mostScenes - 1), sentences.slice(mostScenes - 1).join(', ')];
}

function even(length: number): number {
  return Math.round(length / 2) * 2;
}

/** `at` and `fade` are shares: of the film, and of a shot. */
function paintFrame(
  frame: Canvas,
  shots: readonly Shot[],
  { at, fade, scale }: { at: number; fade: number; scale: number },
): void {
  const place = at * shots.length;
  const index = Math.min(Math.floor(place), shots.length - 1);
  const within = place - index;
  const shot = shots[index] as Shot;
  const before = shots[index - 1];
  copyView(frame, shot, within, 1);
  // The scene before is still moving while it fades away.
  if (before && within < fade) copyView(frame, before, 1 + within, 1 - within / fade);
  caption(frame, shot, { opacity: Math.min(within / Math.max(fade, 0.01), 1), scale });
}

function copyView(frame: Canvas, { picture, path }: Shot, within: number, opacity: number): void {
  const eased = Math.min(within, 1.5) - 0.5;
  const [roomX, roomY] = [picture.width - frame.width - 2, picture.height - frame.height - 2];
  const left = roomX / 2 + (roomX / 2) * path.x * eased;
  const top = roomY / 2 + (roomY / 2) * path.y * eased;
  const [fromX, fromY] = [
    Math.max(Math.min(Math.floor(left), roomX), 0),
    Math.max(Math.min(Math.floor(top), roomY), 0),
  ];
  // Between the pixels, or the slow movement would jerk.
  const [shareX, shareY] = [left - Math.floor(left), top - Math.floor(top)];
  const { rgba: source } = picture;
  for (let y = 0; y < frame.height; y += 1) {
    for (let x = 0; x < frame.width; x += 1) {
      const to = (y * frame.width + x) * 4;
      const from = ((fromY + y) * picture.width + fromX + x) * 4;
      const below = from + picture.width * 4;
      for (let channel = 0; channel < 3; channel += 1) {
        const upper =
          (source[from + channel] ?? 0) * (1 - shareX) + (source[from + 4 + channel] ?? 0) * shareX;
        const lower =
          (source[below + channel] ?? 0) * (1 - shareX) + (source[below + 4 + channel] ?? 0) * shareX;
        const seen = upper * (1 - shareY) + lower * shareY;
        frame.rgba[to + channel] =
          opacity === 1 ? seen : (frame.rgba[to + channel] ?? 0) * (1 - opacity) + seen * opacity;
      }
    }
  }
}

const label = 'LOCAL/STORYBOARD';

function caption(
  frame: Canvas,
  { lines }: Shot,
  { opacity, scale }: { opacity: number; scale: number },
): void {
  const lineHeight = 10 * scale;
  const top = frame.height - lines.length * lineHeight - 8 * scale;
  if (lines.length > 0)
    paintRectangle(
      frame,
      { left: 0, top: top - 6 * scale, right: frame.width, bottom: frame.height },
      { color: [10, 12, 20], opacity: 0.55 * opacity },
    );
  for (const [index, line] of lines.entries()) {
    paintLine(frame, line, {
      x: Math.round((frame.width - lineDots(line) * scale) / 2),
      y: top + index * lineHeight,
      scale,
      color: [255, 255, 255],
      opacity: 0.95 * opacity,
    });
  }
  const small = Math.max(Math.floor(scale / 2), 1);
  if (frame.height >= 120)
    paintLine(frame, label, {
      x: frame.width - (lineDots(label) + 4) * small,
      y: 4 * small,
      scale: small,
      color: [255, 255, 255],
      opacity: 0.6,
    });
}
