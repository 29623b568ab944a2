"""Causes of claims that do not hold, by artefact and claim, with the numbers of a measurement that tests each.

A number is written ``{{record; row; column}}``. Of every other claim that does not hold the cause is unknown.
"""

from collections.abc import Mapping

CAUSES: Mapping[tuple[str, str], str] = {
    (
        "linlap-logistic",
        "It is nearer to the exact predictive than the mode is",
    ): (
        "In part a wide prior: separable data bound the weights on one side alone, and the Gaussian reaches beyond. "
        "With the prior precisions 0.01, 0.1 and 1 its distance is {{linlap-logistic; Laplace, probit, prior precision "
        "0.01; |p − exact| over the map}}, {{linlap-logistic; Laplace, probit, prior precision 0.1; |p − exact| over "
        "the map}} and {{linlap-logistic; Laplace, probit, prior precision 1; |p − exact| over the map}}, the mode's "
        "{{linlap-logistic; MAP, prior precision 1; |p − exact| over the map}} with the last."
    ),
    (
        "linlap-em",
        "2,000 samples give the covariance within .15",
    ): (
        "Chance alone: the error is {{linlap-em; 2000 samples; covariance: relative error}}, and that of as many "
        "independent samples from the exact posterior {{linlap-em; 2000 samples; its sampling error}}."
    ),
    (
        "linlap-subnetwork",
        "10 % by the variances of a diagonal Laplace keep .7",
    ): (
        "It chooses weights that hardly any output depends on, whose variance is the prior's: with 10 % of the weights "
        "the deviation between the clusters is {{linlap-subnetwork; toy: diag_variance, 10 %; sd between clusters}}, "
        "with 10 % at random {{linlap-subnetwork; toy: random, 10 %; sd between clusters}}, with all "
        "{{linlap-subnetwork; toy: full; sd between clusters}}."
    ),
    (
        "dip-calibration",
        "With and without TV-PredCP coverage is nearer its level than dropout's",
    ): (
        "With TV-PredCP its error is made where an image is empty or full: over all pixels the error of coverage is "
        "{{dip-calibration; linearised DIP, evidence and TV-PredCP; mean error of coverage}}, dropout's "
        "{{dip-calibration; MC dropout, p = .4; mean error of coverage}}; over the other pixels it is "
        "{{dip-calibration; linearised DIP, evidence and TV-PredCP; the same of pixels that the deep image prior has "
        "between 0.05 and 0.95}}, dropout's {{dip-calibration; MC dropout, p = .4; the same of pixels that the deep "
        "image prior has between 0.05 and 0.95}}. Without TV-PredCP that is undecided."
    ),
    (
        "l2m-figure1",
        "As printed, it performs on par: NLL at most .1 nats above four methods'",
    ): (
        "The formula has 1/λ and Adam's ε in place of the prior precision λ, the weight decay: "
        "{{l2m-figure1; L2M as printed; weights near the width of their prior, %}} % of the weights keep the width of "
        "their prior; with λ in its place "
        "{{l2m-figure1; L2M corrected, linearised; weights near the width of their prior, %}} %. The NLL needs more: "
        "printed it is {{l2m-figure1; L2M as printed; test NLL, nats per point}}; corrected, by sampled networks "
        "{{l2m-figure1; L2M corrected, sampled; test NLL, nats per point}}, linearised after the document's training "
        "{{l2m-figure1; L2M corrected, linearised, document's training; test NLL, nats per point}}, and linearised at "
        "the mode {{l2m-figure1; L2M corrected, linearised; test NLL, nats per point}}."
    ),
    (
        "lae-table1",
        "… and memory quadratic in the resolution",
    ): (
        "Columns of the Jacobian can be pulled back a few at a time. With all at once memory has the power "
        "{{lae-figure7; BackPACK diag; memory, power of the pixels}} of the pixels, else "
        "{{lae-figure7; diag; memory, power of the pixels}}."
    ),
    (
        "lae-figure7",
        "… and in memory, whatever the program",
    ): (
        "As for Table 1: power {{lae-figure7; BackPACK diag; memory, power of the pixels}} with all columns at "
        "once, {{lae-figure7; diag; memory, power of the pixels}} with a few."
    ),
    (
        "lae-table2",
        "At equal temperature −log p of post-hoc is at least twice that of online",
    ): (
        "In print post-hoc networks are drawn at temperature 1. At 1/500 both have "
        "{{lae-table2; post-hoc, T = 0.002; −log p (squared error of drawn networks, summed)}} "
        "and {{lae-table2; online, recomputed, T = 0.002; −log p (squared error of drawn networks, summed)}}."
    ),
    (
        "lae-figure9",
        "MNIST → KMNIST: σ of a Laplacian autoencoder's output (refitted) detects better than a VAE by any score",
    ): (
        "The variance that the VAE learns: with one noise scale its best score, −log p, is "
        "{{lae-figure9; MNIST → KMNIST: VAE; AUROC by −log p}}, with a variance of each pixel "
        "{{lae-figure9; MNIST → KMNIST: VAE, learned variance; AUROC by −log p}}. It is not that pixels without ink "
        "have small variances: with these blanked it has "
        "{{lae-detection; MNIST → KMNIST, blanked: VAE, learned variance; AUROC by −log p}}."
    ),
    (
        "lae-figure9",
        "Fashion-MNIST → MNIST: σ of a Laplacian autoencoder's output (refitted) detects better than a VAE by any "
        "score",
    ): (
        "In part the diagonal, and the sensitivity of the decoder to any noise. Post-hoc, σ of the output has "
        "{{lae-detection; Fashion-MNIST → MNIST: LAE, post-hoc; AUROC by σ of the output}} with a diagonal, and with "
        "KFAC, over σ by isotropic noise, {{lae-detection; Fashion-MNIST → MNIST: LAE, post-hoc, KFAC; AUROC by σ over "
        "isotropic}}. Trained online, with a diagonal, it is {{lae-detection; Fashion-MNIST → MNIST: LAE, online, "
        "refitted; AUROC by σ of the output}}, over isotropic noise {{lae-detection; Fashion-MNIST → MNIST: LAE, "
        "online, refitted; AUROC by σ over isotropic}}. A VAE with learned "
        "variances has {{lae-detection; Fashion-MNIST → MNIST: VAE, learned variance; AUROC by WAIC}} by WAIC. Neither "
        "ink as the reason nor KFAC after online training was tested."
    ),
    (
        "vl-table2",
        "… and so does one of VI with noise on the outputs of layers",
    ): (
        "Each layer is computed twice, for the mean and for the variance: {{vl-table2; LeNet: VI; steps of MAP}} steps "
        "of MAP for LeNet and {{vl-table2; three convolutions: VI; steps of MAP}} for three convolutions. With drawn "
        "weights, which need one product, it takes {{vl-table2; LeNet: VI, drawn weights; steps of MAP}} and "
        "{{vl-table2; three convolutions: VI, drawn weights; steps of MAP}}."
    ),
    (
        "l2m-uci",
        "UCI: no extra computation: its posterior costs less than a pass with single gradients",
    ): (
        "The optimiser's state costs little to read ({{l2m-uci; yacht; reading the state, % of training}} % of "
        "training on yacht). With the statistics of the likelihood and the gradients of 16 batches it takes "
        "{{l2m-uci; yacht; with the statistics and 16 batches, %}} %, beside {{l2m-uci; yacht; pass with single "
        "gradients, %}} % for a pass with single gradients."
    ),
    (
        "l2m-classification",
        "Images: detects better than MAP, at an NLL at most .05 nats higher",
    ): (
        "The evidence chooses too much uncertainty: with its prior the NLL on Fashion-MNIST is {{l2m-classification; "
        "Fashion-MNIST, LeNet: L2M, prior by the evidence; test NLL, nats}}. The same curvature tuned on held-out data "
        "has {{l2m-classification; Fashion-MNIST, LeNet: L2M, prior by held-out data; test NLL, nats}}, beside "
        "{{l2m-classification; Fashion-MNIST, LeNet: MAP; test NLL, nats}} of MAP, and still detects better. On "
        "CIFAR-10, so tuned, it is MAP."
    ),
    (
        "l2m-classification",
        "Images: NLL within .05 nats of that with single gradients",
    ): (
        "Adam's state averages squares of gradients over weights that still move, with the batch statistics of "
        "normalisation and the labels of the data. Taken again at the last weights with drawn labels (`refresh`), "
        "its NLL is {{l2m-classification; CIFAR-10, ResNet: L2M, drawn labels; test NLL, nats}} on CIFAR-10, "
        "beside {{l2m-classification; CIFAR-10, ResNet: diagonal, single gradients; test NLL, nats}} by single "
        "gradients. The three were not changed one by one."
    ),
    (
        "l2m-classification",
        "Images: the printed formula keeps MAP's accuracy, within a point",
    ): (
        "The formula has 1/λ and Adam's ε in place of the prior precision λ, the weight decay: by networks sampled as "
        "printed the accuracy on Fashion-MNIST is "
        "{{l2m-classification; Fashion-MNIST, LeNet: L2M as printed, sampled; accuracy, %}} %. Linearised, with λ, "
        "it is {{l2m-classification; Fashion-MNIST, LeNet: L2M, prior by the evidence; accuracy, %}} %, but "
        "on CIFAR-10 {{l2m-classification; CIFAR-10, ResNet: L2M, prior by the evidence; accuracy, %}} %, beside "
        "{{l2m-classification; CIFAR-10, ResNet: MAP; accuracy, %}} % of MAP."
    ),
    (
        "foundation-worth",
        "… NLL .02 nats below that of temperature scaling",
    ): (
        "It is overconfident: its confidence is {{foundation-worth; osc.laplace, adapters and head; confidence less "
        "accuracy}} above its accuracy. With the best temperature under each, {{foundation-worth; osc.laplace, "
        "adapters and head; NLL at that temperature, nats}} and {{foundation-worth; temperature scaling; NLL at that "
        "temperature, nats}} remain. Unrefined its NLL is {{foundation-worth; osc.laplace, adapters and head, "
        "refine=False; NLL, nats}}, beside {{foundation-worth; temperature scaling; NLL, nats}} of temperature "
        "scaling."
    ),
}
