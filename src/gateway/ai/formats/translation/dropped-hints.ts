// Collects members of a request that a model does not receive and that do not affect the answer:
// labels and hints. The caller receives one warning for each name, so that no member is dropped silently.
import type { Warning } from '../../hub/language-model.ts';

export interface DroppedHints {
  /** Adds a warning, once for each feature. */
  add(feature: string, details: string): void;
  readonly warnings: readonly Warning[];
}

export function collectDroppedHints(): DroppedHints {
  const warnings = new Map<string, Warning>();
  return {
    add(feature, details) {
      if (!warnings.has(feature)) warnings.set(feature, { type: 'unsupported', feature, details });
    },
    get warnings() {
      return [...warnings.values()];
    },
  };
}
