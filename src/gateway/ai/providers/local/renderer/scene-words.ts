// The vocabulary of `local/shapes`: colors, numbers and names of simple things, and the parser that finds
// them in a prompt. All other words are ignored.
import type { Color, ShapeKind } from './canvas.ts';

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

const shapeNames: Record<string, { kind: ShapeKind; color?: Color }> = {
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
// The number of things in a plural without a number.
const defaultPlural = 3;
const maxPerItem = 24;

/** The content of a prompt. */
export interface SceneDescription {
  background: readonly [Color, Color] | undefined;
  items: { kind: ShapeKind; color: Color | undefined; count: number }[];
}

/** Parses the prompt word by word: numbers and colors belong to the next named thing. */
export function describeScene(prompt: string): SceneDescription {
  const scene: SceneDescription = { background: undefined, items: [] };
  let color: Color | undefined;
  let count: number | undefined;
  for (const word of wordsOf(prompt)) {
    const item = itemOf(word);
    if (item !== undefined) {
      scene.items.push({
        kind: item.kind,
        color: color ?? item.color,
        count: Math.min(count ?? (item.isPlural ? defaultPlural : 1), maxPerItem),
      });
      [color, count] = [undefined, undefined];
    } else if (Object.hasOwn(colors, word)) color = colors[word];
    else if (Object.hasOwn(numbers, word))
      // "two dozen" is 24.
      count = word === 'dozen' && (count ?? 1) !== 1 ? (count ?? 1) * 12 : numbers[word];
    else if (/^\d{1,3}$/.test(word)) count = Math.max(Number(word), 1);
    else if (Object.hasOwn(skies, word) || word === 'background') {
      scene.background = color === undefined ? (skies[word] ?? scene.background) : backgroundOf(color);
      color = undefined;
    }
  }
  // A color at the end is the background: "three circles on blue".
  if (color !== undefined) scene.background ??= backgroundOf(color);
  return scene;
}

function wordsOf(prompt: string): readonly string[] {
  return (
    prompt
      .toLowerCase()
      .normalize('NFKD')
      .match(/[\p{L}\p{N}]+/gu) ?? []
  );
}

function itemOf(word: string): { kind: ShapeKind; color?: Color; isPlural: boolean } | undefined {
  const singular = singularOf(word);
  const name = [word, singular].find((candidate) => Object.hasOwn(shapeNames, candidate));
  const shape = name === undefined ? undefined : shapeNames[name];
  return shape && { ...shape, isPlural: singular !== word || word === 'forest' };
}

/** Removes "es" where a known name remains, and otherwise "s". */
function singularOf(word: string): string {
  const stem = word.replace(/es$/, '');
  return Object.hasOwn(shapeNames, stem) ? stem : word.replace(/s$/, '');
}

function backgroundOf(color: Color): readonly [Color, Color] {
  return [mixColors(color, white, 0.14), mixColors(color, darkColor, 0.14)];
}

export const white: Color = [255, 255, 255];
export const darkColor: Color = [16, 18, 30];

/** The first color with this share of the second. */
export function mixColors(firstColor: Color, secondColor: Color, share: number): Color {
  const channel = (index: 0 | 1 | 2) => firstColor[index] + (secondColor[index] - firstColor[index]) * share;
  return [channel(0), channel(1), channel(2)];
}
