// The version in this installation's package.json.
import { readTextSync, assetPath } from '../../kernel/assets.ts';

/** The version, such as `0.1.0`. */
export const version: string = (JSON.parse(readTextSync(assetPath('package.json'))) as { version: string })
  .version;
