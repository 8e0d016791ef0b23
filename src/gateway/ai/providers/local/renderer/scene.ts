// The image of a prompt, by rules and without a model: recognized words are drawn (scene-words.ts), and
// all other choices come from a random generator that is seeded with the prompt and the seed of the call.
import { createHash } from 'node:crypto';
import type { Size } from '../../../hub/media-model.ts';
import {
  createCanvas,
  paintGradient,
  paintShape,
  shapeKinds,
  type Canvas,
  type Color,
  type Shape,
  type ShapeKind,
} from './canvas.ts';
import { darkColor, describeScene, mixColors, white, type SceneDescription } from './scene-words.ts';

// Each of these covers the whole width of the image.
const sceneryKinds: readonly ShapeKind[] = ['wave', 'mountain'];
const skyKinds: readonly ShapeKind[] = ['moon', 'cloud', 'star'];

/** The number of shapes in the prompt, and how many of them are scenery, which costs the most to draw. */
export function countShapes(prompt: string): { shapes: number; scenery: number } {
  const { items } = describeScene(prompt);
  return { shapes: countItems(items), scenery: countItems(items.filter(isScenery)) };
}

function countItems(items: SceneDescription['items']): number {
  return items.reduce((sum, { count }) => sum + count, 0);
}

function isScenery({ kind }: { kind: ShapeKind }): boolean {
  return sceneryKinds.includes(kind);
}

/** Paints the prompt. The same prompt, size and seed give the same pixels. */
export function paintScene(prompt: string, { width, height }: Size, seed: string): Canvas {
  const random = createRandom(`${seed}\n${prompt}`);
  const scene = describeScene(prompt);
  const canvas = createCanvas(width, height);
  const palette = paletteOf(random);
  const background = scene.background ?? [
    mixColors(palette[0] as Color, white, 0.62),
    mixColors(palette[1] as Color, white, 0.3),
  ];
  paintGradient(canvas, background, (random() - 0.5) * 0.5);
  const drawing: Drawing = { width, height, palette, random };
  const shapes = scene.items.length === 0 ? abstractShapes(drawing) : arrangeShapes(drawing, scene.items);
  for (const shape of shapes) paintShape(canvas, shape);
  return canvas;
}

/** The choices that all shapes of one image share. */
interface Drawing extends Size {
  palette: readonly Color[];
  random: () => number;
}

interface Position {
  x: number;
  y: number;
  radius: number;
}

/** The layout of the shapes so far. */
interface Layout extends Drawing {
  /** Shapes other than scenery. */
  freeShapes: number;
  usualRadius: number;
  positions: Position[];
}

function arrangeShapes(drawing: Drawing, items: SceneDescription['items']): Shape[] {
  const { width, height, palette, random } = drawing;
  const freeShapes = countItems(items.filter((item) => !isScenery(item)));
  const shortSide = Math.min(width, height);
  const usualRadius =
    freeShapes === 1
      ? shortSide * 0.3
      : Math.min(Math.sqrt((width * height) / (freeShapes * 6.5)), shortSide * 0.26);
  const layout: Layout = { ...drawing, freeShapes, usualRadius, positions: [] };
  const backToFront = [...items].sort((a, b) => depthOf(a.kind) - depthOf(b.kind));
  return backToFront.flatMap(({ kind, color, count }) => {
    const itemColor = color ?? palette[Math.floor(random() * palette.length)] ?? darkColor;
    return Array.from({ length: count }, (_, index) => {
      // Shapes of one item differ slightly, so that they are distinguishable where they touch.
      const shade =
        count === 1 ? itemColor : mixColors(itemColor, random() < 0.5 ? white : darkColor, random() * 0.1);
      return placeShape(layout, { kind, color: shade, index, count });
    });
  });
}

function placeShape(
  layout: Layout,
  { kind, color, index, count }: { kind: ShapeKind; color: Color; index: number; count: number },
): Shape {
  const { width, height, random, usualRadius, positions } = layout;
  switch (kind) {
    case 'wave': {
      const y = height * (0.72 + 0.09 * index);
      return { kind, x: width / 2, y, radius: width * 0.36, angle: 0, color, opacity: 0.96 };
    }
    case 'mountain': {
      const x = width * (count === 1 ? 0.5 : 0.15 + (0.7 * (index + random() * 0.4)) / count);
      const radius = Math.min(width, height) * (0.36 + random() * 0.12);
      return { kind, x, y: height * 0.74, radius, angle: 0, color, opacity: 1 };
    }
    default: {
      const position = freePosition(layout, kind, usualRadius * (0.85 + random() * 0.3));
      positions.push(position);
      return { kind, ...position, angle: tilt(kind, random), color, opacity: 1 };
    }
  }
}

/** Shapes of a lower depth are painted first. */
function depthOf(kind: ShapeKind): number {
  if (kind === 'mountain') return 0;
  if (skyKinds.includes(kind)) return 1;
  return kind === 'wave' ? 2 : 3;
}

const tiltedKinds: readonly ShapeKind[] = ['square', 'triangle', 'star', 'hexagon'];

/** Things that stand or float are almost upright; geometric shapes are tilted. In radians. */
function tilt(kind: ShapeKind, random: () => number): number {
  const maxTilt = tiltedKinds.includes(kind) ? 0.5 : 0.06;
  return (random() - 0.5) * maxTilt;
}

/** The part of the height, from 0 to 1, in which shapes of the kind stand. */
function heightRange(kind: ShapeKind): [number, number] {
  if (skyKinds.includes(kind)) return [0, 0.55];
  return kind === 'boat' || kind === 'house' || kind === 'tree' ? [0.4, 0.95] : [0, 1];
}

/**
 * A position that overlaps no other shape. The radius shrinks until there is such a position, so that every
 * shape is visible.
 */
function freePosition(
  { width, height, random, freeShapes, positions }: Layout,
  kind: ShapeKind,
  preferredRadius: number,
): Position {
  const [top, bottom] = heightRange(kind);
  const maxRadius = Math.min(preferredRadius, (height * (bottom - top)) / 2.3);
  if (freeShapes === 1) return { x: width / 2, y: height * (top + bottom) * 0.5, radius: maxRadius };
  for (let radius = maxRadius; ; radius *= 0.92) {
    for (let attempt = 0; attempt < 24; attempt += 1) {
      const x = radius * 1.15 + random() * (width - radius * 2.3);
      const y = height * top + radius * 1.15 + random() * (height * (bottom - top) - radius * 2.3);
      const isFree = positions.every(
        (other) => Math.hypot(other.x - x, other.y - y) > (other.radius + radius) * 1.18,
      );
      // Below three pixels an overlap is not visible.
      if (radius < 3 || isFree) return { x, y, radius };
    }
  }
}

/** Random shapes, for a prompt without anything to draw. */
function abstractShapes({ width, height, palette, random }: Drawing): Shape[] {
  const kinds = shapeKinds.filter((kind) =>
    ['circle', 'ring', 'square', 'triangle', 'hexagon', 'star', 'moon'].includes(kind),
  );
  return Array.from({ length: 9 + Math.floor(random() * 6) }, (_, index): Shape => ({
    kind: kinds[Math.floor(random() * kinds.length)] ?? 'circle',
    x: width * (0.08 + random() * 0.84),
    y: height * (0.08 + random() * 0.84),
    // Large shapes in the back, small ones in front.
    radius: Math.min(width, height) * (0.3 - 0.018 * index + random() * 0.05),
    angle: random() * Math.PI,
    color: palette[index % palette.length] ?? darkColor,
    opacity: 0.72 + random() * 0.24,
  }));
}

/** A harmonic palette of five colors: neighbors on the color wheel, their opposites, and a dark one. */
function paletteOf(random: () => number): Color[] {
  const hue = random() * 360;
  const hueSteps = random() < 0.5 ? [0, 32, 180, 208, 300] : [0, 120, 150, 240, 30];
  return hueSteps.map((step, index) =>
    colorOfHue(hue + step, 0.5 + random() * 0.25, index === 4 ? 0.3 : 0.5 + random() * 0.12),
  );
}

/** HSL to RGB. */
function colorOfHue(hue: number, saturation: number, lightness: number): Color {
  const channel = (offset: number) => {
    const turn = (offset + hue / 30) % 12;
    return (
      255 *
      (lightness -
        saturation * Math.min(lightness, 1 - lightness) * Math.max(-1, Math.min(turn - 3, 9 - turn, 1)))
    );
  };
  return [channel(0), channel(8), channel(4)];
}

/** Pseudo-random numbers from 0 to 1, seeded with the text (mulberry32). */
function createRandom(text: string): () => number {
  let state = createHash('sha256').update(text, 'utf8').digest().readUInt32LE(0);
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixedState = Math.imul(state ^ (state >>> 15), state | 1);
    mixedState ^= mixedState + Math.imul(mixedState ^ (mixedState >>> 7), mixedState | 61);
    return ((mixedState ^ (mixedState >>> 14)) >>> 0) / 2 ** 32;
  };
}
