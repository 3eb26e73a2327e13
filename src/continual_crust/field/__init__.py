"""In the field: a learner for anyone's own noisy images, kept in a folder that survives everything.

The rooms before this one learn streams that are known beforehand. Here classes arrive when they arrive, as folders or
arrays, and the learner lives on between commands:

    inputs, folder, rows      images come in: arrays, torch data sets, folders larger than memory
    strategy, lesson, growth  Sift, one epoch at a time, with a head that grows
    judge, hindsight          what is thought of images: of a batch, and of what was kept before
    seen                      what is remembered about every image that was ever given
    state                     the folder STATE: atomic generations, checksums; its format is described there
    settings, core            what a learner is, and the one way it changes
    learner                   `ContinualLearner`, the same in Python
    session, checkpoint       the same from the command line, interrupted at any moment and continued
    review, review_file       a person's marks
"""

from continual_crust.field.learner import ContinualLearner

__all__ = ["ContinualLearner"]
