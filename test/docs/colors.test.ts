// The contrast of the portal's colors by WCAG 2.2: text at least 4.5, borders of fields at least 3.
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';

const style = readFileSync(path.join(import.meta.dirname, '../../scripts/docs/header.css'), 'utf8');
const methods = readFileSync(path.join(import.meta.dirname, '../../scripts/docs/portal.css'), 'utf8');

const schemes = ['light', 'dark'] as const;

function readColors(scheme: (typeof schemes)[number]): Map<string, string> {
  return new Map(
    Array.from(
      style.matchAll(/(--[\w-]+): light-dark\((#\w+), (#\w+)\)/g),
      ([, name = '', light = '', dark = '']) => [name, scheme === 'light' ? light : dark],
    ),
  );
}

/** The relative luminance of a color such as `#a3432a`. */
function luminance(color: string): number {
  const [red = 0, green = 0, blue = 0] = [1, 3, 5].map((at) => {
    const value = Number.parseInt(color.slice(at, at + 2), 16) / 255;
    return value <= 0.040_45 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

function contrast(first: string, second: string): number {
  const [lower = 0, higher = 0] = [luminance(first), luminance(second)].sort((a, b) => a - b);
  return (higher + 0.05) / (lower + 0.05);
}

describe.each(schemes)('the %s colors of the portal', (scheme) => {
  const colors = readColors(scheme);
  const color = (name: string) => colors.get(name) ?? '';
  const codeColors = [...colors.keys()].filter((name) => /^--code-(?!ground)/.test(name));
  const onCards = ['--ink', '--quiet', '--accent', ...codeColors];

  test.each([
    ...onCards.flatMap((name) => [
      [name, '--card'],
      [name, '--ground'],
    ]),
    ['--ink', '--code-ground'],
    ['--ink', '--mark'],
    ['--quiet', '--mark'],
    ['--accent', '--mark'],
    ['--on-accent', '--accent'],
  ] as [string, string][])('have readable %s on %s', (text, ground) => {
    expect(codeColors.length).toBeGreaterThan(5);
    expect(contrast(color(text), color(ground))).toBeGreaterThanOrEqual(4.5);
  });

  test('show the border of a field', () => {
    expect(contrast(color('--field'), color('--card'))).toBeGreaterThanOrEqual(3);
    expect(contrast(color('--field'), color('--ground'))).toBeGreaterThanOrEqual(3);
  });

  test('have readable names of methods', () => {
    const pairs = [...methods.matchAll(/--method: light-dark\((#\w+), (#\w+)\)/g)];
    // GET, POST, PUT with PATCH, and DELETE.
    expect(pairs.length).toBe(4);
    // The background of the name is 13 % of the name's own color over the page's ground.
    for (const [, light = '', dark = ''] of pairs) {
      const text = scheme === 'light' ? light : dark;
      const mix = [1, 3, 5].map((at) => {
        const part = (value: string) => Number.parseInt(value.slice(at, at + 2), 16);
        return Math.round(part(text) * 0.13 + part(color('--ground')) * 0.87)
          .toString(16)
          .padStart(2, '0');
      });
      expect(contrast(text, `#${mix.join('')}`), text).toBeGreaterThanOrEqual(4.5);
    }
  });
});
