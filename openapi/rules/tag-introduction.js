// Requires that a tag introduces its operations: what they are for and where to begin, in two
// sentences or more. It is the first text that readers of the reference and of generated clients see.

const minimumLength = 120;

export function tagIntroduction() {
  return {
    Tag(tag, ctx) {
      // redocly reports a tag without any description.
      if (tag.description === undefined) return;
      const text = tag.description.replaceAll(/\s+/g, ' ').trim();
      if (text.length < minimumLength || !/[.:;] \S/.test(text))
        ctx.report({
          message: `The tag ${tag.name} needs an introduction of two sentences and ${minimumLength} characters.`,
          location: ctx.location.child(['description']),
        });
    },
  };
}
