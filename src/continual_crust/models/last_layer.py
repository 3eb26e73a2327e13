"""The one way to reach the last layer of any network."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from continual_crust.errors import InputError


def last_linear(model: nn.Module) -> nn.Linear:
    """The linear layer a classifier ends in."""
    layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
    if not layers:
        raise InputError(
            f"{type(model).__name__} has no linear layer; last-layer gradients need a network that ends in nn.Linear."
        )
    return layers[-1]


def checked_module(model: nn.Module) -> nn.Module:
    """A network, whatever its type hint promised."""
    if not isinstance(model, nn.Module):
        raise InputError(f"model is {model!r}; give a module, not its class or name.")
    return model


def checked_head(model: nn.Module) -> nn.Linear:
    """The last layer of a network that anyone may have made, if it can be trained here."""
    head = last_linear(checked_module(model))
    if is_lazy(head.weight):
        raise InputError(
            f"the last layer of {type(model).__name__} does not know its sizes yet; run the network on one batch of "
            "images first, or give an nn.Linear."
        )
    if head.weight.dtype != torch.float32:
        raise InputError(
            f"{type(model).__name__} computes in {head.weight.dtype}, and images come in torch.float32; give "
            "model.float()."
        )
    return head


def checked_output(model: nn.Module, output: object) -> Tensor:
    """A network's output, which must be a tensor with a row for each image."""
    if not isinstance(output, Tensor):
        raise InputError(
            f"the output of {type(model).__name__} is a {type(output).__name__}; give a network whose output is one "
            "tensor, a row of logits for each image."
        )
    if output.ndim != 2:
        raise InputError(
            f"the output of {type(model).__name__} has shape {tuple(output.shape)}; give a network whose output is a "
            "row of logits for each image."
        )
    return output


def check_takes(model: nn.Module, images: Tensor) -> None:
    """Refuse a module that cannot compute anything from such images.

    Nothing counts about them but their shape and how they lie in memory: many a module flattens by `view`, which cannot
    take every layout.
    """
    checked_head(model)
    # Two, as batch normalisation that keeps no statistics cannot work on one.
    two = images[[0, 0]] if len(images) else images.new_zeros(2, *images.shape[1:])
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            features_and_logits(model, two.to(next(model.parameters()).device, torch.float32).zero_())
    except InputError:
        raise
    except Exception as error:  # whatever a person's own network may raise
        shape = "×".join(map(str, images.shape[1:]))
        reason = str(error).partition("\n")[0].rstrip(".") or type(error).__name__
        raise InputError(
            f"the network cannot take images of {shape} (channels, height, width): {reason}; give one that can."
        ) from None
    finally:
        model.train(was_training)


def features_and_logits(model: nn.Module, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Run the network and return what enters its last layer along with what leaves it."""
    layer = last_linear(model)
    seen: list[tuple[Tensor, Tensor, int]] = []
    hook = layer.register_forward_hook(
        lambda _, entering, leaving: seen.append((entering[0], leaving, _changes(leaving)))
    )
    try:
        logits = checked_output(model, model(inputs))
    finally:
        hook.remove()
    if len(seen) == 1:
        features, leaving, changes = seen[0]
        untouched = leaving.data_ptr() == logits.data_ptr() and _changes(leaving) == changes
        if untouched and leaving.shape == logits.shape:
            return features, logits
    raise InputError(
        f"{type(model).__name__} does not end in its last linear layer, which is the one registered last, {layer}; "
        "register the nn.Linear whose output is the network's after all others, without softmax or other layers behind "
        "it."
    )


def _changes(tensor: Tensor) -> int:
    """How often a tensor was changed in place; in inference mode PyTorch does not count."""
    return 0 if tensor.is_inference() else tensor._version
