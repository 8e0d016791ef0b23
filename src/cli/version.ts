// The version of this installation, as package.json says.
import packageDescription from '../../package.json' with { type: 'json' };

/** Such as `0.1.0`. */
export const version: string = packageDescription.version;
