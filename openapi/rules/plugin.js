// The contract's own lint rules, for redocly.yaml. Each rule is in its own file, whose first lines say
// what it requires. redocly needs the plugin as a default export.

import { componentFileUnique } from './component-file-unique.js';
import { described } from './described.js';
import { errorResponses } from './error-responses.js';
import { eventUnion } from './event-union.js';
import { exampleRequired } from './example-required.js';
import { listNames } from './list-names.js';
import { operationName } from './operation-name.js';
import { ownSecurity } from './own-security.js';
import { portablePattern } from './portable-pattern.js';
import { sharedTypes } from './shared-types.js';
import { tagIntroduction } from './tag-introduction.js';
import { typedValues } from './typed-values.js';
import { unionMembers } from './union-members.js';
import { wireNames } from './wire-names.js';

export default function plugin() {
  return {
    id: 'townhall',
    rules: {
      oas3: {
        'component-file-unique': componentFileUnique,
        described,
        'error-responses': errorResponses,
        'event-union': eventUnion,
        'example-required': exampleRequired,
        'list-names': listNames,
        'operation-name': operationName,
        'own-security': ownSecurity,
        'portable-pattern': portablePattern,
        'shared-types': sharedTypes,
        'tag-introduction': tagIntroduction,
        'typed-values': typedValues,
        'union-members': unionMembers,
        'wire-names': wireNames,
      },
    },
  };
}
