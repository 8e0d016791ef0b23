// The notice of third-party code in our artifacts: each package with its licence and the licence's
// text.

import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';

const rule = '='.repeat(80);

/**
 * The notice for packages of node_modules, sorted by name, and for Node if the artifact contains it.
 * Throws for a package without a licence.
 */
export function thirdPartyNotice(
  root: string,
  packages: ReadonlySet<string>,
  { hasNode }: { hasNode: boolean },
): string {
  const parts = [...packages].sort().map((name) => {
    const folder = path.join(root, 'node_modules', name);
    const { version, license } = JSON.parse(readFileSync(path.join(folder, 'package.json'), 'utf8')) as {
      version: string;
      license?: string;
    };
    const texts = readdirSync(folder)
      .filter((file) => /^(?:licen[cs]e|copying|notice)/i.test(file) && !file.endsWith('.ts'))
      .sort();
    if (license === undefined && texts.length === 0)
      throw new Error(
        `the package ${name} has no "license" and no licence file; replace it or add its licence`,
      );
    const body = texts.map((file) => readFileSync(path.join(folder, file), 'utf8').trim()).join('\n\n');
    const text = body || `Its licence is ${license}; the package carries no text of it.`;
    return `${rule}\n${name} ${version} (${license ?? 'see below'})\n\n${text}\n`;
  });
  if (hasNode) {
    const licence = readFileSync(path.join(root, 'node_modules/node/LICENSE'), 'utf8');
    parts.push(`${rule}\nNode.js\n\n${licence}`);
  }
  const introduction = 'Townhall contains or uses the following works of others under their own licences.';
  return `${introduction}\n\n${parts.join('\n')}`;
}
