// The video of `local/storyboard`: each sentence of the prompt is a drawn scene over which the camera
// moves slowly, with the sentence as a caption. Runs in a thread, since the encoder is synchronous.
import type { createH264MP4Encoder } from 'h264-mp4-encoder';
import { createCanvas, paintRectangle, type Canvas } from './canvas.ts';
import { lineWidth, paintLine, wrapLines } from './bitmap-font.ts';
import type { MediaFile, Size } from '../../../hub/media-model.ts';
import { paintScene } from './scene.ts';
import type { RenderTask } from './render-pool.ts';

const maxScenes = 8;
// A scene is this much larger than the frame, so that the camera can move.
const sceneScale = 1.16;
const fadeSeconds = 0.4;

interface Shot {
  scene: Canvas;
  lines: string[];
  /** Direction of the camera, from -1 to 1 on both axes. */
  path: { x: number; y: number };
}

export async function renderStoryboard(
  { prompt, size, seed, durationSeconds, framesPerSecond }: Extract<RenderTask, { kind: 'storyboard' }>,
  reportProgress: (share: number) => void,
): Promise<MediaFile> {
  const scale = Math.max(Math.round(size.height / 180), 1);
  const shots = sentencesOf(prompt).map((sentence, index): Shot => ({
    scene: paintScene(
      sentence,
      { width: toEven(size.width * sceneScale), height: toEven(size.height * sceneScale) },
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
      time: index / frames,
      fade: Math.min((fadeSeconds * shots.length) / durationSeconds, 0.5),
      scale,
    });
    encoder.addFrameRgba(frame.rgba);
    if (index % framesPerSecond === 0) reportProgress(index / frames);
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
  // The package is a CommonJS bundle without named exports.
  const { default: library } = (await import('h264-mp4-encoder')) as unknown as {
    default: { createH264MP4Encoder: typeof createH264MP4Encoder };
  };
  const encoder = await library.createH264MP4Encoder();
  // Speed 5 of 10. Every frame is a key frame: the encoder writes no table of key
  // frames, so players would seek into the middle of a group.
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
  if (sentences.length <= maxScenes) return sentences.length === 0 ? [prompt] : sentences;
  // The last scene gets all remaining sentences.
  return [...sentences.slice(0, maxScenes - 1), sentences.slice(maxScenes - 1).join(', ')];
}

function toEven(length: number): number {
  return Math.round(length / 2) * 2;
}

/** `time` is a share of the video, `fade` a share of a shot. */
function paintFrame(
  frame: Canvas,
  shots: readonly Shot[],
  { time, fade, scale }: { time: number; fade: number; scale: number },
): void {
  const position = time * shots.length;
  const index = Math.min(Math.floor(position), shots.length - 1);
  const share = position - index;
  const shot = shots[index] as Shot;
  const previous = shots[index - 1];
  paintView(frame, shot, share, 1);
  // The previous scene keeps moving while it fades out.
  if (previous && share < fade) paintView(frame, previous, 1 + share, 1 - share / fade);
  paintCaption(frame, shot, { opacity: Math.min(share / Math.max(fade, 0.01), 1), scale });
}

/** Paints the part of the scene in the camera's view at this share of its shot. */
function paintView(frame: Canvas, { scene, path }: Shot, share: number, opacity: number): void {
  const movement = Math.min(share, 1.5) - 0.5;
  const [rangeX, rangeY] = [scene.width - frame.width - 2, scene.height - frame.height - 2];
  const cameraX = rangeX / 2 + (rangeX / 2) * path.x * movement;
  const cameraY = rangeY / 2 + (rangeY / 2) * path.y * movement;
  const [fromX, fromY] = [
    Math.max(Math.min(Math.floor(cameraX), rangeX), 0),
    Math.max(Math.min(Math.floor(cameraY), rangeY), 0),
  ];
  // Bilinear interpolation between pixels; without it the slow movement would jerk.
  const [shareX, shareY] = [cameraX - Math.floor(cameraX), cameraY - Math.floor(cameraY)];
  const { rgba: source } = scene;
  for (let y = 0; y < frame.height; y += 1) {
    for (let x = 0; x < frame.width; x += 1) {
      const targetOffset = (y * frame.width + x) * 4;
      const sourceOffset = ((fromY + y) * scene.width + fromX + x) * 4;
      const nextRow = sourceOffset + scene.width * 4;
      for (let channel = 0; channel < 3; channel += 1) {
        const upperRow =
          (source[sourceOffset + channel] ?? 0) * (1 - shareX) +
          (source[sourceOffset + 4 + channel] ?? 0) * shareX;
        const lowerRow =
          (source[nextRow + channel] ?? 0) * (1 - shareX) + (source[nextRow + 4 + channel] ?? 0) * shareX;
        const color = upperRow * (1 - shareY) + lowerRow * shareY;
        frame.rgba[targetOffset + channel] =
          opacity === 1 ? color : (frame.rgba[targetOffset + channel] ?? 0) * (1 - opacity) + color * opacity;
      }
    }
  }
}

const label = 'LOCAL/STORYBOARD';

function paintCaption(
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
      x: Math.round((frame.width - lineWidth(line) * scale) / 2),
      y: top + index * lineHeight,
      scale,
      color: [255, 255, 255],
      opacity: 0.95 * opacity,
    });
  }
  const labelScale = Math.max(Math.floor(scale / 2), 1);
  if (frame.height >= 120)
    paintLine(frame, label, {
      x: frame.width - (lineWidth(label) + 4) * labelScale,
      y: 4 * labelScale,
      scale: labelScale,
      color: [255, 255, 255],
      opacity: 0.6,
    });
}
