// The manifests of the project and its published packages have the same origin.

import { readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';

const root = path.join(import.meta.dirname, '../..');
const manifests = ['.', 'clients/gateway', 'clients/agent', 'clients/react'].map(
  (folder) =>
    JSON.parse(readFileSync(path.join(root, folder, 'package.json'), 'utf8')) as Record<string, unknown>,
);

describe('the manifests of the packages', () => {
  // docs/decisions/2026-11-23-clients.md explains why no manifest has an address yet.
  test.each(['repository', 'homepage', 'bugs', 'license'])('have the same %s', (name) => {
    const values = manifests.map((manifest) => {
      const value = manifest[name];
      // `directory` names the package's own folder.
      return typeof value === 'object' && value !== null ? { ...value, directory: undefined } : value;
    });
    expect(values).toEqual(Array(manifests.length).fill(values[0]));
  });
});
