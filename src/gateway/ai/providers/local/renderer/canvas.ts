// A pixel canvas without a graphics library. Shapes are signed distance functions, so their
// edges are smooth at every size, and the same calls give the same pixels on every machine.

export interface Canvas {
  width: number;
  height: number;
  /** Four bytes per pixel; alpha is always 255. */
  rgba: Uint8ClampedArray;
}

/** Red, green and blue, from 0 to 255. */
export type Color = readonly [number, number, number];

export const shapeKinds = [
  'circle',
  'ring',
  'square',
  'triangle',
  'star',
  'hexagon',
  'moon',
  'heart',
  'cloud',
  'tree',
  'house',
  'boat',
  'mountain',
  'wave',
] as const;
export type ShapeKind = (typeof shapeKinds)[number];

export interface Shape {
  kind: ShapeKind;
  /** The center, in pixels. */
  x: number;
  y: number;
  radius: number;
  /** The rotation in radians. */
  angle: number;
  color: Color;
  opacity: number;
}

export function createCanvas(width: number, height: number): Canvas {
  return { width, height, rgba: new Uint8ClampedArray(width * height * 4).fill(255) };
}

/** Fills the canvas from one color at the top to the other at the bottom, tilted by the angle in radians. */
export function paintGradient(
  { width, height, rgba }: Canvas,
  [from, to]: readonly [Color, Color],
  angle: number,
): void {
  const [alongX, alongY] = [Math.sin(angle), Math.cos(angle)];
  const reach = Math.abs(alongX) * width + Math.abs(alongY) * height;
  for (let y = 0; y < height; y += 1) {
    for (let x = 0; x < width; x += 1) {
      const share = 0.5 + ((x - width / 2) * alongX + (y - height / 2) * alongY) / reach;
      // Dithering by less than one step of a channel, so that wide gradients show no bands.
      const noise = (((x * 73_856_093) ^ (y * 19_349_663)) & 255) / 255 - 0.5;
      const offset = (y * width + x) * 4;
      for (let channel = 0; channel < 3; channel += 1) {
        const start = from[channel] ?? 0;
        rgba[offset + channel] = start + ((to[channel] ?? 0) - start) * share + noise;
      }
    }
  }
}

/** Paints the shape and a soft shadow below it. */
export function paintShape(canvas: Canvas, shape: Shape): void {
  const { kind, x: middleX, y: middleY, radius, angle, color, opacity } = shape;
  const unitDistance = distances[kind];
  const shadowOffset = radius * 0.12;
  // One pixel more for the smooth edge.
  const reach = radius * extentOf(kind) + shadowOffset * 3 + 1;
  const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
  const distanceAt = (x: number, y: number) => {
    const [shiftedX, shiftedY] = [(x - middleX) / radius, (y - middleY) / radius];
    return unitDistance(shiftedX * cos + shiftedY * sin, shiftedY * cos - shiftedX * sin) * radius;
  };
  const [fromX, toX] = [
    Math.max(Math.floor(middleX - reach), 0),
    Math.min(Math.ceil(middleX + reach), canvas.width),
  ];
  const [fromY, toY] = [
    Math.max(Math.floor(middleY - reach), 0),
    Math.min(Math.ceil(middleY + reach), canvas.height),
  ];
  for (let y = fromY; y < toY; y += 1) {
    // Lighter towards the top, as if lit from above.
    const brightness = 1.12 - 0.24 * ((y - middleY) / (2 * radius) + 0.5);
    for (let x = fromX; x < toX; x += 1) {
      const shadowDistance = distanceAt(x, y - shadowOffset) / (2 * shadowOffset + 1);
      const shadowOpacity = 0.22 * opacity * coverageAt(shadowDistance);
      if (shadowOpacity > 0) blend(canvas, x, y, { color: black, opacity: shadowOpacity });
      const shapeOpacity = opacity * coverageAt(distanceAt(x, y));
      if (shapeOpacity > 0) blend(canvas, x, y, { color, opacity: shapeOpacity, light: brightness });
    }
  }
}

/** The share of a pixel within an edge, from 0 to 1, by the distance of its center to the edge. */
function coverageAt(distance: number): number {
  return Math.min(Math.max(0.5 - distance, 0), 1);
}

export function paintRectangle(
  canvas: Canvas,
  edges: { left: number; top: number; right: number; bottom: number },
  paint: { color: Color; opacity: number },
): void {
  for (let y = Math.max(edges.top, 0); y < Math.min(edges.bottom, canvas.height); y += 1) {
    for (let x = Math.max(edges.left, 0); x < Math.min(edges.right, canvas.width); x += 1)
      blend(canvas, x, y, paint);
  }
}

const black: Color = [0, 0, 0];

/** Blends a color over one pixel. */
function blend(
  { width, rgba }: Canvas,
  x: number,
  y: number,
  { color, opacity, light = 1 }: { color: Color; opacity: number; light?: number },
): void {
  const offset = (y * width + x) * 4;
  for (let channel = 0; channel < 3; channel += 1) {
    const previous = rgba[offset + channel] ?? 0;
    rgba[offset + channel] = previous + ((color[channel] ?? 0) * light - previous) * opacity;
  }
}

// Signed distances to the edge of a shape of radius 1 around the origin: y points down, negative
// is inside. Some are bounds only, which is enough because they are exact near the edge.
const distances: Record<ShapeKind, (x: number, y: number) => number> = {
  circle: (x, y) => Math.hypot(x, y) - 1,
  ring: (x, y) => Math.abs(Math.hypot(x, y) - 0.78) - 0.22,
  square: (x, y) => box(x, y, 0.85, 0.85),
  triangle: (x, y) => polygon(x, y, 3, -Math.PI / 2),
  hexagon: (x, y) => polygon(x, y, 6, 0),
  star: (x, y) => star(x, y),
  moon: (x, y) => Math.max(Math.hypot(x, y) - 1, 0.82 - Math.hypot(x - 0.5, y + 0.22)),
  heart: (x, y) => heart(Math.abs(x), y),
  cloud: (x, y) =>
    Math.min(
      Math.hypot(x + 0.5, y - 0.1) - 0.42,
      Math.hypot(x, y + 0.18) - 0.55,
      Math.hypot(x - 0.55, y - 0.08) - 0.42,
      box(x, y - 0.32, 0.62, 0.2),
    ),
  tree: (x, y) => Math.min(polygon(x, (y + 0.25) / 1.05, 3, -Math.PI / 2) * 0.8, box(x, y - 0.6, 0.14, 0.4)),
  house: (x, y) => Math.min(box(x, y - 0.32, 0.62, 0.53), roof(x, y + 0.6)),
  boat: (x, y) => Math.min(hull(x, y - 0.45), sail(x, y)),
  mountain: (x, y) => peak(x, y + 0.6),
  wave: (x, y) => Math.max((Math.sin(x * 3.6) * 0.16 - y) * 0.86, box(x, y - 1.4, 2.2, 1.8)),
};

/** The distance of the farthest point of a shape of radius 1 from its center. */
function extentOf(kind: ShapeKind): number {
  return largeExtents[kind] ?? 1.15;
}

const largeExtents: Partial<Record<ShapeKind, number>> = {
  wave: 3.9,
  mountain: 1.6,
  tree: 1.35,
  // The eaves end at 1.27, but the distance to them is underestimated, which widens their shadow.
  house: 1.6,
  square: 1.25,
};

function box(x: number, y: number, halfWidth: number, halfHeight: number): number {
  const [overX, overY] = [Math.abs(x) - halfWidth, Math.abs(y) - halfHeight];
  return Math.hypot(Math.max(overX, 0), Math.max(overY, 0)) + Math.min(Math.max(overX, overY), 0);
}

function polygon(x: number, y: number, corners: number, firstCorner: number): number {
  const sector = (2 * Math.PI) / corners;
  const angle = Math.atan2(y, x) - firstCorner;
  // All sides are equal, so measure from the middle of the nearest one.
  const fromMiddle = angle - sector * (Math.floor(angle / sector) + 0.5);
  return Math.cos(fromMiddle) * Math.hypot(x, y) - Math.cos(sector / 2);
}

function star(x: number, y: number): number {
  const sector = (2 * Math.PI) / 5;
  const angle = Math.atan2(y, x) + Math.PI / 2;
  const fromPoint = Math.abs(angle - sector * Math.round(angle / sector));
  const [alongX, alongY] = [Math.hypot(x, y) * Math.cos(fromPoint), Math.hypot(x, y) * Math.sin(fromPoint)];
  const [innerX, innerY] = [0.42 * Math.cos(sector / 2), 0.42 * Math.sin(sector / 2)];
  // The line from a tip of the star to the inner corner beside it.
  return ((alongX - 1) * innerY + alongY * (1 - innerX)) / Math.hypot(innerY, 1 - innerX);
}

function heart(x: number, y: number): number {
  const upperDistance = Math.hypot(x - 0.46, y + 0.3) - 0.52;
  // The straight side touches the round one where both slopes are equal.
  const lowerDistance = Math.max((x + y - 0.895) * Math.SQRT1_2, (x - y - 0.76) * Math.SQRT1_2, -y - 0.3);
  return Math.min(upperDistance, lowerDistance);
}

function roof(x: number, y: number): number {
  return Math.max((Math.abs(x) * 0.62 - y) * 0.85 - 0.28, y - 0.45);
}

function hull(x: number, y: number): number {
  return Math.max(Math.abs(y) - 0.22, (Math.abs(x) + y * 0.9 - 0.8) * 0.74);
}

function sail(x: number, y: number): number {
  const canvasSheet = Math.max(-x + 0.06, (x - 0.06 + (y + 0.95) * -0.62) * 0.85, y - 0.1);
  const mast = box(x, y + 0.35, 0.04, 0.6);
  return Math.min(canvasSheet, mast);
}

function peak(x: number, y: number): number {
  return Math.max((Math.abs(x) * 1.05 - y) * 0.69, y - 1.4);
}
