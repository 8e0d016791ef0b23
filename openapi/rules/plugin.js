// The contract's own lint rules, for redocly.yaml. Each lives in a file of its own and says in its first lines what it
// asks for; redocly wants the plugin itself as a default export.

import { componentFileUnique } from './component-file-unique.js';
import { errorResponses } from './error-responses.js';
import { eventUnion } from './event-union.js';
import { exampleRequired } from './example-required.js';
import { operationName } from './operation-name.js';
import { ownSecurity } from './own-security.js';
import { wireNames } from './wire-names.js';

export default function plugin() {
  return {
    id: 'townhall',
    rules: {
      oas3: {
        'component-file-unique': componentFileUnique,
        'error-responses': errorResponses,
        'event-union': eventUnion,
        'example-required': exampleRequired,
        'operation-name': operationName,
        'own-security': ownSecurity,
        'wire-names': wireNames,
      },
    },
  };
}
