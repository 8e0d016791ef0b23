// From the words of a prompt to a picture, by rules that are written here and no model: colours, numbers and the names
// of some things are understood, everything else decides by chance, which is drawn from the prompt and the seed.
import { createHash } from 'node:crypto';
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
import type { Size } from '../../../hub/media-model.ts';

const colors: Record<string, Color> = {
  red: [222, 48, 55],
  crimson: [178, 24, 52],
  orange: [245, 139, 36],
  yellow: [250, 205, 50],
  gold: [222, 172, 48],
  green: [58, 160, 86],
  lime: [150, 205, 60],
  teal: [28, 148, 148],
  turquoise: [54, 190, 184],
  cyan: [60, 196, 220],
  blue: [47, 103, 208],
  navy: [24, 42, 96],
  indigo: [72, 66, 170],
  purple: [134, 72, 178],
  violet: [148, 98, 214],
  pink: [240, 128, 168],
  magenta: [206, 52, 146],
  brown: [130, 86, 54],
  black: [28, 28, 32],
  white: [246, 246, 242],
  grey: [138, 142, 148],
  gray: [138, 142, 148],
  silver: [190, 196, 202],
  beige: [232, 218, 190],
  cream: [250, 240, 214],
};

const things: Record<string, { kind: ShapeKind; color?: Color }> = {
  circle: { kind: 'circle' },
  ball: { kind: 'circle' },
  dot: { kind: 'circle' },
  disc: { kind: 'circle' },
  planet: { kind: 'circle' },
  sun: { kind: 'circle', color: [252, 200, 58] },
  ring: { kind: 'ring' },
  wheel: { kind: 'ring' },
  square: { kind: 'square' },
  box: { kind: 'square' },
  cube: { kind: 'square' },
  block: { kind: 'square' },
  triangle: { kind: 'triangle' },
  pyramid: { kind: 'triangle' },
  star: { kind: 'star', color: [250, 214, 80] },
  hexagon: { kind: 'hexagon' },
  moon: { kind: 'moon', color: [244, 236, 200] },
  heart: { kind: 'heart', color: [222, 48, 75] },
  cloud: { kind: 'cloud', color: [244, 246, 250] },
  tree: { kind: 'tree', color: [46, 128, 72] },
  forest: { kind: 'tree', color: [40, 110, 66] },
  house: { kind: 'house', color: [196, 92, 66] },
  home: { kind: 'house', color: [196, 92, 66] },
  boat: { kind: 'boat', color: [150, 70, 48] },
  ship: { kind: 'boat', color: [150, 70, 48] },
  mountain: { kind: 'mountain', color: [108, 112, 134] },
  hill: { kind: 'mountain', color: [104, 150, 88] },
  wave: { kind: 'wave', color: [38, 112, 176] },
  sea: { kind: 'wave', color: [38, 112, 176] },
  ocean: { kind: 'wave', color: [26, 90, 156] },
  water: { kind: 'wave', color: [52, 132, 190] },
  lake: { kind: 'wave', color: [52, 132, 190] },
};

const skies: Record<string, readonly [Color, Color]> = {
  night: [
    [12, 18, 48],
    [44, 52, 104],
  ],
  sunset: [
    [92, 52, 124],
    [250, 156, 84],
  ],
  sunrise: [
    [246, 178, 120],
    [252, 226, 168],
  ],
  dawn: [
    [120, 132, 190],
    [250, 206, 170],
  ],
  day: [
    [92, 170, 232],
    [206, 232, 248],
  ],
  sky: [
    [92, 170, 232],
    [206, 232, 248],
  ],
  storm: [
    [48, 56, 70],
    [118, 128, 140],
  ],
  desert: [
    [250, 214, 150],
    [226, 160, 92],
  ],
  space: [
    [8, 8, 20],
    [34, 26, 64],
  ],
};

const numbers: Record<string, number> = {
  a: 1,
  an: 1,
  one: 1,
  single: 1,
  two: 2,
  three: 3,
  four: 4,
  five: 5,
  six: 6,
  seven: 7,
  eight: 8,
  nine: 9,
  ten: 10,
  dozen: 12,
};
const several = 3;
const mostOfAKind = 24;
const sceneries: readonly ShapeKind[] = ['wave', 'mountain'];
const overhead: readonly ShapeKind[] = ['moon', 'cloud', 'star'];

interface Scene {
  background: readonly [Color, Color] | undefined;
  items: { kind: ShapeKind; color: Color | undefined; count: number }[];
}

/** How much the prompt asks for: things, and among them scenery, each of which covers the whole picture. */
export function countShapes(prompt: string): { shapes: number; scenery: number } {
  const { items } = sceneOf(prompt);
  const sum = (counted: Scene['items']) => counted.reduce((total, { count }) => total + count, 0);
  return { shapes: sum(items), scenery: sum(items.filter(({ kind }) => sceneries.includes(kind))) };
}

/** Paints what the prompt says. The same words, size and seed give the same pixels. */
export function paintScene(prompt: string, { width, height }: Size, seed: string): Canvas {
  const chance = createChance(`${seed}\n${prompt}`);
  const scene = sceneOf(prompt);
  const canvas = createCanvas(width, height);
  const palette = paletteOf(chance);
  const background = scene.background ?? [
    mixed(palette[0] as Color, white, 0.62),
    mixed(palette[1] as Color, white, 0.3),
  ];
  paintGradient(canvas, background, (chance() - 0.5) * 0.5);
  const shapes =
    scene.items.length === 0
      ? abstraction(canvas, palette, chance)
      : arranged(scene, canvas, palette, chance);
  for (const shape of shapes) paintShape(canvas, shape);
  return canvas;
}

const white: Color = [255, 255, 255];
const dark: Color = [16, 18, 30];

function sceneOf(prompt: string): Scene {
  const scene: Scene = { background: undefined, items: [] };
  let color: Color | undefined;
  let count: number | undefined;
  for (const word of prompt
    .toLowerCase()
    .normalize('NFKD')
    .match(/[\p{L}\p{N}]+/gu) ?? []) {
    const singular = word.replace(/(?:es|s)$/, (ending) =>
      word.slice(0, -ending.length) in things ? '' : ending === 'es' ? 'e' : '',
    );
    const thing = Object.hasOwn(things, word)
      ? things[word]
      : Object.hasOwn(things, singular)
        ? things[singular]
        : undefined;
    if (thing !== undefined) {
      const isPlural = singular !== word || word === 'forest';
      scene.items.push({
        kind: thing.kind,
        color: color ?? thing.color,
        count: Math.min(count ?? (isPlural ? several : 1), mostOfAKind),
      });
      [color, count] = [undefined, undefined];
    } else if (Object.hasOwn(colors, word)) color = colors[word];
    else if (Object.hasOwn(numbers, word))
      count = (count ?? 1) === 1 || word !== 'dozen' ? numbers[word] : (count ?? 1) * 12;
    else if (/^\d{1,3}$/.test(word)) count = Math.max(Number(word), 1);
    else if (Object.hasOwn(skies, word) || word === 'background') {
      scene.background = color === undefined ? (skies[word] ?? scene.background) : shaded(color);
      color = undefined;
    }
  }
  // A colour that no thing has taken is the one behind them all: "three circles on blue".
  if (color !== undefined) scene.background ??= shaded(color);
  return scene;
}

function shaded(color: Color): readonly [Color, Color] {
  return [mixed(color, white, 0.14), mixed(color, dark, 0.14)];
}

function mixed(color: Color, other: Color, share: number): Color {
  const channel = (index: 0 | 1 | 2) => color[index] + (other[index] - color[index]) * share;
  return [channel(0), channel(1), channel(2)];
}

function arranged(
  scene: Scene,
  { width, height }: Size,
  palette: readonly Color[],
  chance: () => number,
): Shape[] {
  const shapes: Shape[] = [];
  const taken: { x: number; y: number; radius: number }[] = [];
  const things = scene.items
    .filter(({ kind }) => !sceneries.includes(kind))
    .reduce((sum, { count }) => sum + count, 0);
  const shortSide = Math.min(width, height);
  const usual =
    things === 1 ? shortSide * 0.3 : Math.min(Math.sqrt((width * height) / (things * 6.5)), shortSide * 0.26);
  // Scenery first, for the things stand before it.
  const ordered = [...scene.items].sort((a, b) => depth(a.kind) - depth(b.kind));
  for (const { kind, color, count } of ordered) {
    const chosen = color ?? palette[Math.floor(chance() * palette.length)] ?? dark;
    for (let index = 0; index < count; index += 1) {
      // Things of one kind differ a little, so that they can be told apart where they touch.
      const own = count === 1 ? chosen : mixed(chosen, chance() < 0.5 ? white : dark, chance() * 0.1);
      if (kind === 'wave')
        shapes.push({
          kind,
          x: width / 2,
          y: height * (0.72 + 0.09 * index),
          radius: width * 0.36,
          angle: 0,
          color: own,
          opacity: 0.96,
        });
      else if (kind === 'mountain')
        shapes.push({
          kind,
          x: width * (count === 1 ? 0.5 : 0.15 + (0.7 * (index + chance() * 0.4)) / count),
          y: height * 0.74,
          radius: shortSide * (0.36 + chance() * 0.12),
          angle: 0,
          color: own,
          opacity: 1,
        });
      else {
        const place = freePlace(kind, {
          width,
          height,
          radius: usual * (0.85 + chance() * 0.3),
          alone: things === 1,
          chance,
          taken,
        });
        taken.push(place);
        shapes.push({ kind, ...place, angle: tilt(kind, chance), color: own, opacity: 1 });
      }
    }
  }
  return shapes;
}

function depth(kind: ShapeKind): number {
  return kind === 'mountain' ? 0 : overhead.includes(kind) ? 1 : kind === 'wave' ? 2 : 3;
}

// Things that stand or sail are upright; the rest may lean.
function tilt(kind: ShapeKind, chance: () => number): number {
  const leans = kind === 'square' || kind === 'triangle' || kind === 'star' || kind === 'hexagon';
  return (chance() - 0.5) * (leans ? 0.5 : 0.06);
}

interface Placing extends Size {
  radius: number;
  alone: boolean;
  chance: () => number;
  taken: readonly { x: number; y: number; radius: number }[];
}

// Smaller and smaller until there is room: what was asked for is all there, and nothing hides another thing.
function freePlace(
  kind: ShapeKind,
  { width, height, radius: wanted, alone, chance, taken }: Placing,
): { x: number; y: number; radius: number } {
  const [top, bottom] = overhead.includes(kind)
    ? [0, 0.55]
    : kind === 'boat' || kind === 'house' || kind === 'tree'
      ? [0.4, 0.95]
      : [0, 1];
  if (alone)
    return {
      x: width / 2,
      y: height * (top + bottom) * 0.5,
      radius: Math.min(wanted, (height * (bottom - top)) / 2.3),
    };
  for (let radius = Math.min(wanted, (height * (bottom - top)) / 2.3); ; radius *= 0.92) {
    for (let attempt = 0; attempt < 24; attempt += 1) {
      const x = radius * 1.15 + chance() * (width - radius * 2.3);
      const y = height * top + radius * 1.15 + chance() * (height * (bottom - top) - radius * 2.3);
      if (
        radius < 3 ||
        taken.every((other) => Math.hypot(other.x - x, other.y - y) > (other.radius + radius) * 1.18)
      )
        return { x, y, radius };
    }
  }
}

function abstraction({ width, height }: Size, palette: readonly Color[], chance: () => number): Shape[] {
  const kinds = shapeKinds.filter((kind) =>
    ['circle', 'ring', 'square', 'triangle', 'hexagon', 'star', 'moon'].includes(kind),
  );
  return Array.from({ length: 9 + Math.floor(chance() * 6) }, (_, index): Shape => ({
    kind: kinds[Math.floor(chance() * kinds.length)] ?? 'circle',
    x: width * (0.08 + chance() * 0.84),
    y: height * (0.08 + chance() * 0.84),
    // Large ones behind, small ones before.
    radius: Math.min(width, height) * (0.3 - 0.018 * index + chance() * 0.05),
    angle: chance() * Math.PI,
    color: palette[index % palette.length] ?? dark,
    opacity: 0.72 + chance() * 0.24,
  }));
}

// Five colours that lie well together: two neighbours, their opposites, and one dark.
function paletteOf(chance: () => number): Color[] {
  const hue = chance() * 360;
  const turns = chance() < 0.5 ? [0, 32, 180, 208, 300] : [0, 120, 150, 240, 30];
  return turns.map((turn, index) =>
    fromHue(hue + turn, 0.5 + chance() * 0.25, index === 4 ? 0.3 : 0.5 + chance() * 0.12),
  );
}

function fromHue(hue: number, saturation: number, lightness: number): Color {
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

/** Numbers from 0 to 1, the same ones for the same text. */
function createChance(text: string): () => number {
  let state = createHash('sha256').update(text, 'utf8').digest().readUInt32LE(0);
  return () => {
    // Mulberry32: short, even, and more than random enough for pictures.
    state = (state + 0x6d2b79f5) | 0;
    let mixedState = Math.imul(state ^ (state >>> 15), state | 1);
    mixedState ^= mixedState + Math.imul(mixedState ^ (mixedState >>> 7), mixedState | 61);
    return ((mixedState ^ (mixedState >>> 14)) >>> 0) / 2 ** 32;
  };
}
