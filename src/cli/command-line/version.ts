// The version of this installation, as package.json says.
import { readTextNow, assetPath } from '../../kernel/assets.ts';

/** Such as `0.1.0`. */
export const version: string = (JSON.parse(readTextNow(assetPath('package.json'))) as { version: string })
  .version;
