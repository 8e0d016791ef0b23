// The mark of the product, the same drawing as src/console/pages/mark.svg.

export const markPath = 'M12 1.5 2 7v2h20V7zM4 11v7h3v-7zm6.5 0v7h3v-7zM17 11v7h3v-7zM2 20v2.5h20V20z';
